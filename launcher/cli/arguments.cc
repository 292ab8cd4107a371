// With config_file.cc the only file that knows the command-line library (it costs 10 s of compile time per file that
// includes it).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <set>

#include "launcher/cli/config_file.h"
#include "launcher/cli/habits.h"
#include "launcher/cli/options.h"
#include "launcher/cli/paths.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/version.h"
#include "runtime/base/settings.h"

namespace distrun::launcher {
namespace {

constexpr char kStart[] = "Start ranks";
constexpr char kReach[] = "Reach other hosts";
constexpr char kPlace[] = "Place ranks on cores and GPUs";
constexpr char kEnv[] = "Environment of the ranks";
constexpr char kFrameworks[] = "Frameworks";
constexpr char kOutput[] = "See output";
constexpr char kEnd[] = "End the job";
constexpr char kTune[] = "Tune the runtime (each also as DISTRUN_<NAME> and as a key of --config)";
constexpr char kAbout[] = "Look before starting, and about distrun";
constexpr char kHidden[] = "";

class HelpText : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: distrun [options] program [arguments]\n"
           "       distrun [options] script.py [arguments]\n"
           "       distrun [options] -m module [arguments]\n"
           "       distrun check [--build] [--json]\n"
           "       distrun check -H HOST,... [options]\n"
           "       distrun agent --connect HEAD:PORT --key-file FILE\n";
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, positional);
    if (name.starts_with("--mpi")) return "--mpi[=hydra|pmix|pmi2]";
    return name.starts_with("--explain") ? "--explain[=json]" : name;
  }
};

struct Wanted {
  bool version = false;
  bool cflags = false;
  bool libs = false;
};

void add_start(CLI::App& app, RawOptions& raw, Options& options) {
  app.add_option("-n,--num-proc,--np", raw.ranks, "How many ranks (also spelt -np)")->type_name("N")->group(kStart);
  app.add_option("--nproc-per-node,--nproc_per_node,--ppn", raw.ranks_per_host,
                 "How many ranks on each host (also spelt -ppn)")
      ->type_name("N")
      ->group(kStart);
  app.add_option("-H,--host,--hosts", options.hosts, "Hosts and slots, as in me@node[01-04]:8,[fe80::1]:2")
      ->type_name("HOST[:SLOTS],...")
      ->group(kStart);
  app.add_option("--hostfile,--machinefile", options.hostfile,
                 "The same from a file (host slots=N, or host:N); - is standard input")
      ->type_name("FILE")
      ->group(kStart);
  app.add_flag("--no-detect", raw.no_detect,
               "Do not look for an allocation (Slurm, PBS, LSF, ...) to run in, nor for other copies of this command")
      ->group(kStart);
  app.add_flag("--oversubscribe", options.oversubscribe, "Allow more ranks than slots")->group(kStart);
  app.set_config("--config", "", "Read options from a file of name = value lines")->type_name("FILE")->group(kStart);
  app.config_formatter(std::make_shared<ConfigFile>(app));
  app.allow_config_extras(CLI::config_extras_mode::error);
}

void add_reach(CLI::App& app, RawOptions& raw, Options& options) {
  app.add_option("--network", raw.network, "Use these interfaces or networks only, as in eth0,ib*,10.0.0.0/8")
      ->type_name("NAMES")
      ->group(kReach);
  app.add_option("--ssh-port", raw.ssh_port, "Port of the ssh servers (default: as ssh's own configuration says)")
      ->type_name("PORT")
      ->group(kReach);
  app.add_option("--ssh-identity", options.ssh.identity, "Private key for ssh")->type_name("FILE")->group(kReach);
  app.add_option("--ssh-option", options.ssh.options, "As ssh's -o NAME=VALUE (may be repeated)")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->group(kReach);
  app.add_flag("--mpi{mpirun}", options.mpi,
               "Let mpirun (Open MPI) start the ranks, so that MPI works in them; =hydra: mpiexec (MPICH); =pmix, "
               "=pmi2: srun")
      ->group(kReach);
  app.add_option("--agents", raw.agents, "Start none, wait for so many `distrun agent --connect` from anywhere")
      ->type_name("N")
      ->group(kReach);
  app.add_option("--listen", raw.listen, "Where they connect to, with --agents (default: a free port)")
      ->type_name("[ADDRESS:]PORT")
      ->group(kReach);
  app.add_option("--key-file", options.key_file, "32 bytes that head and agents share, with --agents")
      ->type_name("FILE")
      ->group(kReach);
  app.add_option(
         "--launch-with", options.launch_with,
         "Instead of ssh: a command that starts {agent} on {host}, as in 'kubectl exec -i {host} -- sh -c {agent}'")
      ->type_name("COMMAND")
      ->group(kReach);
}

void add_placement(CLI::App& app, RawOptions& raw, Options& options) {
  app.add_option("--bind-to", raw.bind_to,
                 "Pin each rank: none, core, numa, gpu, or auto (default): gpu where there are GPUs, else none")
      ->type_name("WHAT")
      ->group(kPlace);
  app.add_option("--gpu-visibility", raw.gpu_visibility,
                 "all: every rank sees all GPUs and uses number local-rank (default); one: only its own")
      ->type_name("all|one")
      ->group(kPlace);
  app.add_option(
         "--gpus-per-rank", raw.gpus_per_rank,
         "Give each rank so many GPUs; from 2 on it sees only those (default: one, shared where there are too few)")
      ->type_name("N")
      ->group(kPlace);
  app.add_flag("--report-bindings", options.report_bindings, "Show each rank's cores and GPU before it starts")
      ->group(kPlace);
  app.add_option("--start-fan-out", options.fan_out, "Agents that one host starts")
      ->check(CLI::Range(1, 1024))
      ->group(kHidden);
  app.add_option("--sysroot", options.sysroot, "Read /sys and /proc from a copied tree")->group(kHidden);
}

void add_environment(CLI::App& app, RawOptions& raw, Options& options) {
  app.add_option("-x", options.forwarded, "Pass on a variable, or set it (may be repeated)")
      ->type_name("NAME[=VALUE]")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->group(kEnv);
  app.add_option("--env", raw.env_mode,
                 "default: all variables but those of an outer launcher; all; none: PATH, HOME and the like, "
                 "DISTRUN_*, -x, --env-file")
      ->type_name("WHICH")
      ->group(kEnv);
  app.add_option("--env-file", options.env_file, "NAME=value lines")->type_name("FILE")->group(kEnv);
}

void add_frameworks(CLI::App& app, RawOptions& raw, Options& options) {
  app.add_flag("--tf", options.tf, "For tf.distribute strategies: TF_CONFIG, and each rank sees its own GPU only")
      ->group(kFrameworks);
  app.add_option("--tf-roles", options.tf_roles, "Roles in rank order, as in chief=1,worker=2,ps=1 (implies --tf)")
      ->type_name("ROLES")
      ->group(kFrameworks);
  app.add_flag("--tf-own-servers", options.tf_own_servers,
               "With a ps among the roles: the program runs in every role and starts TensorFlow's servers itself")
      ->group(kFrameworks);
  app.add_flag("--tf-keras3-mwms", options.tf_keras3_mwms,
               "Make fit() of Keras 3 work under MultiWorkerMirroredStrategy (implies --tf)")
      ->group(kFrameworks);
  app.add_option("--torch-backend", options.torch_backend,
                 "distrun: what torch.distributed uses where the program says gloo")
      ->type_name("NAME")
      ->group(kFrameworks);
  app.add_flag("--no-tf-config", raw.no_tf_config, "Do not set TF_CONFIG")->group(kFrameworks);
  app.add_flag("--horovod", options.horovod, "Set HOROVOD_RANK and its relatives too")->group(kFrameworks);
  app.add_option("--mimic", raw.mimic,
                 "Set the variables by which programs of openmpi or slurm know their rank; none (default): of neither")
      ->type_name("WHOM")
      ->group(kFrameworks);
}

void add_output(CLI::App& app, RawOptions& raw, Options& options) {
  app.add_option("--tag", raw.tag, "What each line starts with: none, rank ([3], default), host ([3@node1])")
      ->type_name("WHAT")
      ->group(kOutput);
  app.add_flag("--timestamp", options.timestamp, "Put date and time before each line")->group(kOutput);
  app.add_flag("--fold", raw.fold, "Show a line that many ranks write once, as in [0-15] (default on a terminal)")
      ->group(kOutput);
  app.add_flag("--no-fold", raw.no_fold, "Show each rank's lines")->group(kOutput);
  app.add_option("--stdin", raw.input, "Which rank gets standard input: none, all or a number (default 0)")
      ->type_name("RANK")
      ->group(kOutput);
  app.add_option("--tty", raw.terminal, "Give this rank the terminal, for a debugger; Ctrl-\\ ends the job")
      ->type_name("RANK")
      ->group(kOutput);
  app.add_option("--output-dir", options.output_dir, "Also write DIR/rank.<r>.out, DIR/rank.<r>.err and DIR/merged.log")
      ->type_name("DIR")
      ->group(kOutput);
  app.add_option("--report", options.report, "Write to FILE how the job ended, as JSON")
      ->type_name("FILE")
      ->group(kOutput);
  app.add_flag("--all-errors", options.all_errors,
               "After a failure show what all ranks write, not only the first cause")
      ->group(kOutput);
}

void add_end(CLI::App& app, RawOptions& raw) {
  app.add_option("--timeout", raw.timeout,
                 "End the job after this time, waiting for --agents included, with exit code 124")
      ->type_name("SECONDS")
      ->group(kEnd);
  app.add_option(
         "--grace", raw.grace,
         "Time that ranks have to end before KILL when a job is ended (default 10), and where it is given also to "
         "stop after the notice of --preempt-signal")
      ->type_name("SECONDS")
      ->group(kEnd);
}

void add_about(CLI::App& app, Options& options, Wanted& wanted) {
  app.add_flag("--explain{text}", options.explain,
               "Show where each rank would run, its cores, GPU, threads and environment, and why; start nothing (=json "
               "for programs)")
      ->group(kAbout);
  app.add_flag("-v,--verbose", options.verbose, "Say how hosts, addresses, cores and GPUs were chosen, then start")
      ->group(kAbout);
  app.add_flag("--version", wanted.version, "Show the version")->group(kAbout);
  app.add_flag("--cflags", wanted.cflags, "Show compiler options for C and C++ programs that use distrun")
      ->group(kAbout);
  app.add_flag("--libs", wanted.libs, "Show linker options for them")->group(kAbout);
  app.set_help_flag("-h,--help", "Show this help")->group(kAbout);
}

std::string flag_of(std::string_view setting) {
  std::string name(setting);
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

// One flag per row of the settings table. The strings live in `values`, which must not move afterwards.
void add_settings(CLI::App& app, std::vector<std::string>& values) {
  const auto& rows = setting_rows();
  values.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string shown = rows[i].default_value.empty() ? "" : " (default " + rows[i].default_value + ")";
    app.add_option(flag_of(rows[i].name), values[i], std::string(rows[i].help) + shown)
        ->type_name(std::string(rows[i].type))
        ->group(kTune);
  }
}

Status take_settings(const CLI::App& app, const std::vector<std::string>& values, const std::set<std::string>& typed,
                     Options& options) {
  const auto& rows = setting_rows();
  Settings checked;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string flag = flag_of(rows[i].name);
    if (app.count(flag) == 0) continue;
    const bool by_flag = typed.contains(flag);
    const std::string origin = by_flag ? flag : std::string(rows[i].name) + " in the config file";
    DISTRUN_RETURN_IF_ERROR(set_by_name(checked, rows[i].name, values[i], origin));
    (by_flag ? options.settings : options.file_settings).emplace_back(rows[i].name, values[i]);
  }
  return {};
}

// What people type after years of mpirun and its relatives, but a word with one dash means single letters to the
// library.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kOtherwise = {{
    {"-np", "--num-proc"},
    {"-ppn", "--nproc-per-node"},
    {"-host", "--host"},
    {"-hosts", "--host"},
    {"-hostfile", "--hostfile"},
    {"-machinefile", "--hostfile"},
    {"-npernode", "--nproc-per-node"},
    {"--npernode", "--nproc-per-node"},
    {"-bind-to", "--bind-to"},
    {"-oversubscribe", "--oversubscribe"},
    {"-report-bindings", "--report-bindings"},
}};

// "-np", "-np=4" and "-np4"; other words stay as they are.
std::string spell_out(const std::string& word) {
  for (const auto& [dash, option] : kOtherwise) {
    if (!word.starts_with(dash)) continue;
    const std::string rest = word.substr(dash.size());
    if (rest.empty()) return std::string(option);
    if (rest.front() == '=') return std::string(option) + rest;
    const bool number = dash == "-np" || dash == "-ppn";
    if (number && rest.front() >= '0' && rest.front() <= '9') return std::string(option) + "=" + rest;
  }
  return word;
}

constexpr char kFooter[] =
    "Examples:\n"
    "  distrun -np 4 python train.py            four ranks of a script on this machine\n"
    "  distrun -np 4 train.py --epochs 3        the same, with the Python of this environment\n"
    "  distrun -np 2 -m package.train           a module\n"
    "  distrun -np 2 --output-dir logs ./a.out  any program, its output also in files\n"
    "  distrun --explain -np 4 ./a.out          what would be done, and why\n"
    "  distrun check --build                    which backends this installation can use\n"
    "  distrun check -H node1,node2             do these hosts fit together?\n"
    "Exit codes: the first failing rank's; 128 + signal; 64 usage; 69 host or slots unusable; 70 internal; 74 output\n"
    "lost; 75 host lost; 76 a rank left early; 124 --timeout; 126, 127 program not executable, missing; 130 Ctrl-C.\n";

ParseOutcome answer(std::string text, int exit_code) {
  return {.run = false, .text = std::move(text), .exit_code = exit_code};
}

ParseOutcome wrong(const std::string& text) {
  return answer("distrun: " + text + "\nType distrun --help for all options.\n", exit_code::kUsage);
}

// Where the options end and the program begins: at "-m", behind "--", or at the first word that is neither an option
// nor an option's value. Everything from there on belongs to the program, whatever it looks like.
// `typed` gets the options that come before it.
Result<std::size_t> program_start(const CLI::App& app, const std::vector<std::string>& words,
                                  std::set<std::string>& typed) {
  std::string unknown;
  const auto tell = [&unknown](const std::string& name, std::string_view instead) {
    unknown += (unknown.empty() ? "" : "\ndistrun: ") + name + " is not an option of distrun" + std::string(instead);
  };
  std::size_t i = 0;
  for (; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--" || word == "-m" || word == "-" || !word.starts_with('-')) break;
    if (const Habit* habit = habit_of(word)) {
      const std::size_t end = word.find('=');
      tell(word.substr(0, end), ": " + std::string(habit->instead));
      // Intel MPI's -genv takes a name and a value, or NAME=VALUE.
      const bool joined = habit->values == 2 && i + 1 < words.size() && words[i + 1].find('=') != std::string::npos;
      if (end == word.npos) i += joined ? 1 : static_cast<std::size_t>(habit->values);
      continue;
    }
    const bool spelt = word.starts_with("--");
    const std::string name = spelt ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) {
      tell(word, "");
      break;  // whether the next word is its value is not known
    }
    typed.insert(name);
    const bool attached = spelt ? name.size() < word.size() : word.size() > 2;
    const bool takes_value = option->get_items_expected_min() > 0;
    if (takes_value && !attached) ++i;
    const bool empty = attached ? spelt && word.size() == name.size() + 1 : i < words.size() && words[i].empty();
    // A setting may be empty. Elsewhere an empty value is a variable of the shell that was not set.
    if (takes_value && empty && option->get_group() != kTune) {
      return Status(Errc::kInvalidArgument, name + " has an empty value; is a variable of the shell not set?");
    }
  }
  if (!unknown.empty()) return Status(Errc::kInvalidArgument, unknown);
  return std::min(i, words.size());
}

// mpirun's way to start several programs as one job: `-np 1 ./a : -np 3 ./b`. A program may have a `:` of its own.
bool goes_on_as_for_mpirun(const std::vector<std::string>& program) {
  static constexpr std::array<std::string_view, 7> kOfMpirun = {"-n", "-np", "--np", "-c", "-H", "-host", "--host"};
  for (std::size_t i = 0; i + 1 < program.size(); ++i) {
    const bool option = std::find(kOfMpirun.begin(), kOfMpirun.end(), program[i + 1]) != kOfMpirun.end();
    if (program[i] == ":" && option) return true;
  }
  return false;
}

ParseOutcome take_program(std::vector<std::string> rest, Options options) {
  const bool as_it_is = !rest.empty() && rest.front() == "--";
  if (!as_it_is && goes_on_as_for_mpirun(rest)) {
    return wrong(
        "a job runs one program, and what is behind : looks like another one's options, as for mpirun; start a "
        "script that chooses by its rank (sh -c 'case $RANK in 0) exec ./a;; *) exec ./b;; esac'). Write -- before "
        "the program if : is a word of its own");
  }
  if (as_it_is) {
    rest.erase(rest.begin());
  } else if (!rest.empty() && rest.front() == "-m") {
    options.module = true;
    rest.erase(rest.begin());
    if (rest.empty()) return wrong("-m needs the name of a Python module");
  }
  options.program = std::move(rest);
  if (options.program.empty()) {
    return wrong("which program? Write it behind the options, as in distrun -np 4 python train.py");
  }
  if (options.program.front().empty()) return wrong("the name of the program is empty");
  if (!options.explain.empty() && options.explain != "text" && options.explain != "json") {
    return wrong("--explain=" + options.explain + " is not known; write --explain or --explain=json");
  }
  return {.options = std::move(options), .run = true};
}

ParseOutcome about(const Wanted& wanted) {
  std::vector<Result<std::string>> flags;
  if (wanted.cflags) flags.push_back(compiler_flags());
  if (wanted.libs) flags.push_back(linker_flags());
  std::string line;
  for (const auto& one : flags) {
    if (!one.ok()) return answer("distrun: " + one.status().message() + "\n", exit_code::kUnusable);
    line += (line.empty() ? "" : " ") + *one;
  }
  if (!flags.empty()) line += "\n";
  return answer((wanted.version ? std::string("distrun ") + kVersion + "\n" : "") + line, 0);
}

}  // namespace

ParseOutcome parse_arguments(const std::vector<std::string>& arguments) {
  CLI::App app("Starts N copies of a program and lets them train together.\n", "distrun");
  Options options;
  RawOptions raw;
  Wanted wanted;
  std::vector<std::string> settings;
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpText>());
  app.get_formatter()->column_width(38);
  add_start(app, raw, options);
  add_reach(app, raw, options);
  add_placement(app, raw, options);
  add_environment(app, raw, options);
  add_frameworks(app, raw, options);
  add_output(app, raw, options);
  add_end(app, raw);
  add_settings(app, settings);
  add_about(app, options, wanted);
  std::vector<std::string> words;
  for (const std::string& word : arguments) words.push_back(spell_out(word));
  std::set<std::string> typed;
  const auto start = program_start(app, words, typed);
  if (!start.ok()) return wrong(start.status().message());
  words.resize(std::min(*start, words.size()));
  std::reverse(words.begin(), words.end());  // as the library wants them
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    return answer(app.help(), 0);
  } catch (const CLI::ParseError& error) {
    return wrong(error.what());
  }
  if (wanted.version || wanted.cflags || wanted.libs) return about(wanted);
  if (arguments.empty()) return answer(app.help(), exit_code::kUsage);
  if (const Status status = check_options(raw, options); !status.ok()) return wrong(status.message());
  options.grace_given = app.count("--grace") > 0;
  if (const Status status = check_typed(typed, options); !status.ok()) return wrong(status.message());
  if (const Status status = take_settings(app, settings, typed, options); !status.ok()) return wrong(status.message());
  const auto program = arguments.begin() + static_cast<std::ptrdiff_t>(std::min(*start, arguments.size()));
  return take_program({program, arguments.end()}, std::move(options));
}

}  // namespace distrun::launcher
