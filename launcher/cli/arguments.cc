// Only this file and config_file.cc include the command-line library. It adds 10 s of compile time to each file.
#include "launcher/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <set>

#include "launcher/cli/config_file.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/other_launchers_options.h"
#include "launcher/cli/paths.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/version.h"
#include "runtime/base/setting_values.h"
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
    if (name.ends_with("{true}")) return name.substr(0, name.find('{')) + "[=flag]";
    if (name.starts_with("--mpi")) return "--mpi[=hydra|pmix|pmi2]";
    return name.starts_with("--explain") ? "--explain[=json]" : name;
  }
};

struct Wanted {
  bool version = false;
  bool cflags = false;
  bool libs = false;
};

// The options in the order of the help. The texts are parsed in read(), after the library has taken all words.
class Rows {
 public:
  explicit Rows(CLI::App& app) : app_(app) {}
  void group(const char* name) { group_ = name; }

  // `type` is the placeholder for the value in the help.
  template <class Value, class Read>
  void value(const char* names, const char* type, const char* help, Value& out, Read take) {
    std::string& text = texts_.emplace_back();
    CLI::Option* option = app_.add_option(names, text, help)->type_name(type)->group(group_);
    const std::string name = std::string(names).substr(0, std::string_view(names).find(','));
    readers_.push_back(
        [option, name, &text, &out, take] { return option->count() > 0 ? take(name, text, out) : Status(); });
  }
  template <class Value>
  void choice(const char* names, const char* type, const char* help, Value& out) {
    value(names, type, help, out, [](const std::string& option, const std::string& text, Value& chosen) {
      return read_choice(option, text, chosen);
    });
  }
  CLI::Option* text(const char* names, const char* type, const char* help, std::string& out) {
    return app_.add_option(names, out, help)->type_name(type)->group(group_);
  }
  void list(const char* names, const char* type, const char* help, std::vector<std::string>& out) {
    CLI::Option* option = app_.add_option(names, out, help)->type_name(type)->group(group_);
    option->expected(1)->take_all()->allow_extra_args(false);
  }
  template <class Value>
  void flag(const char* names, const char* help, Value& out) {
    app_.add_flag(names, out, help)->group(group_);
  }
  // A flag that sets a value other than true.
  template <class Value>
  void flag(const char* names, const char* help, Value& out, Value set) {
    bool& given = flags_.emplace_back(false);
    app_.add_flag(names, given, help)->group(group_);
    readers_.push_back([&given, &out, set] {
      if (given) out = set;
      return Status();
    });
  }

  [[nodiscard]] Status read() const {
    for (const auto& reader : readers_) DISTRUN_RETURN_IF_ERROR(reader());
    return {};
  }

 private:
  CLI::App& app_;
  const char* group_ = kHidden;
  std::deque<std::string> texts_;
  std::deque<bool> flags_;
  std::vector<std::function<Status()>> readers_;
};

void add_start(CLI::App& app, Rows& rows, Options& options) {
  PlacementOptions& placement = options.placement;
  rows.group(kStart);
  rows.value("-n,--num-proc,--np", "N", "How many ranks (also spelt -np)", placement.ranks,
             [](const std::string&, const std::string& text, int& out) { return read_ranks("-np", text, out); });
  rows.value("--nproc-per-node,--nproc_per_node,--ppn", "N", "How many ranks on each host (also spelt -ppn)",
             placement.ranks_per_host, read_ranks);
  rows.text("-H,--host,--hosts", "HOST[:SLOTS],...", "Hosts and slots, as in me@node[01-04]:8,[fe80::1]:2",
            options.hosts.list);
  rows.text("--hostfile,--machinefile", "FILE", "The same from a file (host slots=N, or host:N); - is standard input",
            options.hosts.file);
  rows.flag("--no-detect",
            "Do not look for an allocation (Slurm, PBS, LSF, ...) to run in, nor for other copies of this command",
            options.hosts.detect, false);
  rows.flag("--oversubscribe", "Allow more ranks than slots", placement.oversubscribe);
  app.set_config("--config", "", "Read options from a file of name = value lines")->type_name("FILE")->group(kStart);
  app.config_formatter(std::make_shared<ConfigFile>(app));
  app.allow_config_extras(CLI::config_extras_mode::error);
}

void add_reach(Rows& rows, HostOptions& hosts) {
  rows.group(kReach);
  rows.value("--network", "NAMES", "Use these interfaces or networks only, as in eth0,ib*,10.0.0.0/8", hosts.network,
             read_network);
  rows.value("--ssh-port", "PORT", "Port of the ssh servers (default: as ssh's own configuration says)", hosts.ssh.port,
             read_port);
  rows.text("--ssh-identity", "FILE", "Private key for ssh", hosts.ssh.identity);
  rows.list("--ssh-option", "NAME=VALUE", "As ssh's -o NAME=VALUE (may be repeated)", hosts.ssh.options);
  rows.flag("--mpi{mpirun}",
            "Let mpirun (Open MPI) start the ranks, so that MPI works in them; =hydra: mpiexec (MPICH); =pmix, "
            "=pmi2: srun",
            hosts.mpi);
  rows.value("--agents", "N", "Start none, wait for so many `distrun agent --connect` from anywhere", hosts.agents,
             read_ranks);
  rows.value("--listen", "[ADDRESS:]PORT", "Where they connect to, with --agents (default: a free port)", hosts.listen,
             read_listen);
  rows.text("--key-file", "FILE", "32 bytes that head and agents share, with --agents", hosts.key_file);
  rows.text("--launch-with", "COMMAND",
            "Instead of ssh: a command that starts {agent} on {host}, as in 'kubectl exec -i {host} -- sh -c {agent}'",
            hosts.launch_with);
}

void add_placement(CLI::App& app, Rows& rows, Options& options) {
  PlacementOptions& placement = options.placement;
  rows.group(kPlace);
  rows.choice("--bind-to", "WHAT",
              "Pin each rank: none, core, numa, gpu, or auto (default): gpu where there are GPUs, else none",
              placement.bind_to);
  rows.choice("--gpu-visibility", "all|one",
              "all: every rank sees all GPUs and uses number local-rank (default); one: only its own",
              placement.gpu_visibility);
  rows.value("--gpus-per-rank", "N",
             "Give each rank so many GPUs; from 2 on it sees only those (default: one, shared where there are too few)",
             placement.gpus_per_rank, read_gpus);
  rows.flag("--report-bindings", "Show each rank's cores and GPU before it starts", placement.report_bindings);
  app.add_option("--start-fan-out", options.hosts.fan_out, "Agents that one host starts")
      ->check(CLI::Range(1, 1024))
      ->group(kHidden);
  app.add_option("--sysroot", placement.sysroot, "Read /sys and /proc from a copied tree")->group(kHidden);
}

void add_environment(Rows& rows, EnvironmentOptions& environment) {
  rows.group(kEnv);
  rows.list("-x", "NAME[=VALUE]", "Pass on a variable, or set it (may be repeated)", environment.forwarded);
  rows.choice("--env", "WHICH",
              "default: all variables but those of an outer launcher; all; none: PATH, HOME and the like, "
              "DISTRUN_*, -x, --env-file",
              environment.mode);
  rows.text("--env-file", "FILE", "NAME=value lines", environment.file);
}

void add_frameworks(Rows& rows, FrameworkOptions& frameworks) {
  rows.group(kFrameworks);
  rows.flag("--tf", "For tf.distribute strategies: TF_CONFIG, and each rank sees its own GPU only", frameworks.tf);
  rows.text("--tf-roles", "ROLES", "Roles in rank order, as in chief=1,worker=2,ps=1 (implies --tf)",
            frameworks.tf_roles);
  rows.flag("--tf-own-servers",
            "With a ps among the roles: the program runs in every role and starts TensorFlow's servers itself",
            frameworks.tf_servers, TfServers::kOwn);
  rows.flag("--tf-keras3-mwms", "Make fit() of Keras 3 work under MultiWorkerMirroredStrategy (implies --tf)",
            frameworks.tf_keras3_mwms);
  rows.text("--torch-backend", "NAME", "distrun: what torch.distributed uses where the program says gloo",
            frameworks.torch_backend);
  rows.flag("--no-tf-config", "Do not set TF_CONFIG", frameworks.tf_config, false);
  rows.flag("--horovod", "Set HOROVOD_RANK and its relatives too", frameworks.horovod);
  rows.choice("--mimic", "WHOM",
              "Set the variables by which programs of openmpi or slurm know their rank; none (default): of neither",
              frameworks.mimic);
}

void add_output(Rows& rows, OutputOptions& output) {
  rows.group(kOutput);
  rows.choice("--tag", "WHAT", "What each line starts with: none, rank ([3], default), host ([3@node1])", output.tag);
  rows.flag("--timestamp", "Put date and time before each line", output.timestamp);
  rows.flag("--fold", "Show a line that many ranks write once, as in [0-15] (default on a terminal)", output.fold,
            Folding::kAlways);
  rows.flag("--no-fold", "Show each rank's lines", output.fold, Folding::kNever);
  rows.value("--stdin", "RANK", "Which rank gets standard input: none, all or a number (default 0)", output.input,
             read_stdin);
  rows.value("--tty", "RANK", "Give this rank the terminal, for a debugger; Ctrl-\\ ends the job", output.input,
             read_tty);
  rows.text("--output-dir", "DIR", "Also write DIR/rank.<r>.out, DIR/rank.<r>.err and DIR/merged.log",
            output.directory);
  rows.text("--report", "FILE", "Write to FILE how the job ended, as JSON", output.report);
  rows.flag("--all-errors", "After a failure show what all ranks write, not only the first cause", output.all_errors);
}

void add_end(Rows& rows, EndOptions& end) {
  rows.group(kEnd);
  rows.value("--timeout", "SECONDS", "End the job after this time, waiting for --agents included, with exit code 124",
             end.timeout, read_seconds);
  rows.value("--grace", "SECONDS",
             "Time that ranks have to end before KILL when a job is ended (default 10), and where it is given also to "
             "stop after the notice of --preempt-signal",
             end.grace, read_seconds);
}

void add_about(CLI::App& app, Rows& rows, Options& options, Wanted& wanted) {
  rows.group(kAbout);
  rows.flag("--explain{text}",
            "Show where each rank would run, its cores, GPU, threads and environment, and why; start nothing (=json "
            "for programs)",
            options.explain);
  rows.flag("-v,--verbose", "Say how hosts, addresses, cores and GPUs were chosen, then start", options.verbose);
  rows.flag("--version", "Show the version", wanted.version);
  rows.flag("--cflags", "Show compiler options for C and C++ programs that use distrun", wanted.cflags);
  rows.flag("--libs", "Show linker options for them", wanted.libs);
  app.set_help_flag("-h,--help", "Show this help")->group(kAbout);
}

std::string flag_of(std::string_view setting) {
  std::string name(setting);
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

// Adds one flag per row of the settings table. The strings are stored in `values`, which must not move afterwards.
void add_settings(CLI::App& app, std::vector<std::string>& values) {
  const auto& rows = setting_rows();
  values.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string shown = rows[i].default_value.empty() ? "" : " (default " + rows[i].default_value + ")";
    const std::string help = std::string(rows[i].help) + shown;
    if (rows[i].type == "flag") {  // without a value it means true
      app.add_flag(flag_of(rows[i].name) + "{true}", values[i], help)->group(kTune);
    } else {
      app.add_option(flag_of(rows[i].name), values[i], help)->type_name(std::string(rows[i].type))->group(kTune);
    }
  }
}

Status take_settings(const CLI::App& app, const std::vector<std::string>& values, const std::set<std::string>& typed,
                     EnvironmentOptions& out) {
  const auto& rows = setting_rows();
  Settings checked;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string flag = flag_of(rows[i].name);
    if (app.count(flag) == 0) continue;
    const bool by_flag = typed.contains(flag);
    const std::string origin = by_flag ? flag : std::string(rows[i].name) + " in the config file";
    DISTRUN_RETURN_IF_ERROR(set_by_name(checked, rows[i].name, values[i], origin));
    (by_flag ? out.settings : out.file_settings).emplace_back(rows[i].name, values[i]);
  }
  return {};
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

// True for a setting of type flag: `--encrypt` alone means true, and `--encrypt no` means `--encrypt=no`.
bool is_flag_setting(const CLI::Option& option) {
  return option.get_group() == kTune && option.get_items_expected_min() == 0;
}

void attach_flag_value(std::vector<std::string>& words, std::size_t at) {
  if (at + 1 >= words.size() || !flag().parse(words[at + 1])) return;
  words[at] += "=" + words[at + 1];
  words.erase(words.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

// Returns where the options end and the program begins: at "-m", after "--", or at the first word that is neither an
// option nor the value of one. Every word from there on belongs to the program, even if it looks like an option.
// `typed` gets the options before it.
Result<std::size_t> program_start(const CLI::App& app, std::vector<std::string>& words, std::set<std::string>& typed) {
  std::string unknown;
  const auto tell = [&unknown](const std::string& name, std::string_view instead) {
    unknown += (unknown.empty() ? "" : "\ndistrun: ") + name + " is not an option of distrun" + std::string(instead);
  };
  std::size_t i = 0;
  for (; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--" || word == "-m" || word == "-" || !word.starts_with('-')) break;
    if (const OtherLaunchersOption* other = find_other_launchers_option(word)) {
      const std::size_t end = word.find('=');
      tell(word.substr(0, end), ": " + std::string(other->instead));
      // Intel MPI's -genv takes a name and a value, or NAME=VALUE.
      const bool joined = other->values == 2 && i + 1 < words.size() && words[i + 1].find('=') != std::string::npos;
      if (end == word.npos) i += joined ? 1 : static_cast<std::size_t>(other->values);
      continue;
    }
    const bool spelt = word.starts_with("--");
    const std::string name = spelt ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) {
      tell(word, "");
      break;  // it is unknown whether the next word is its value
    }
    typed.insert(name);
    if (is_flag_setting(*option) && name == word) attach_flag_value(words, i);
    const bool attached = spelt ? name.size() < words[i].size() : words[i].size() > 2;
    const bool takes_value = option->get_items_expected_min() > 0;
    if (takes_value && !attached) ++i;
    const bool empty = i < words.size() && (attached ? spelt && words[i].size() == name.size() + 1 : words[i].empty());
    // A setting that is no flag may be empty. For other options an empty value means that a shell variable was not set.
    const bool may_be = option->get_group() == kTune ? takes_value : !takes_value;
    if (empty && !may_be) {
      return Status(Errc::kInvalidArgument, name + " has an empty value; is a variable of the shell not set?");
    }
  }
  if (!unknown.empty()) return Status(Errc::kInvalidArgument, unknown);
  return std::min(i, words.size());
}

// mpirun starts several programs as one job with `-np 1 ./a : -np 3 ./b`. A lone `:` may also be a program's argument.
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

// Called after the library has taken all words.
Status take_options(const CLI::App& app, const Rows& rows, const std::vector<std::string>& settings,
                    const std::set<std::string>& typed, Options& options) {
  DISTRUN_RETURN_IF_ERROR(rows.read());
  std::set<std::string> given;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) given.insert(option->get_name());
  }
  if (given.contains("--fold") && given.contains("--no-fold")) {
    return {Errc::kInvalidArgument, "--fold and --no-fold exclude each other"};
  }
  DISTRUN_RETURN_IF_ERROR(complete_options(given, options));
  DISTRUN_RETURN_IF_ERROR(check_typed(typed, options));
  return take_settings(app, settings, typed, options.environment);
}

}  // namespace

ParseOutcome parse_arguments(const std::vector<std::string>& arguments) {
  CLI::App app("Starts N copies of a program and lets them train together.\n", "distrun");
  Options options;
  Rows rows(app);
  Wanted wanted;
  std::vector<std::string> settings;
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpText>());
  app.get_formatter()->column_width(38);
  add_start(app, rows, options);
  add_reach(rows, options.hosts);
  add_placement(app, rows, options);
  add_environment(rows, options.environment);
  add_frameworks(rows, options.frameworks);
  add_output(rows, options.output);
  add_end(rows, options.end);
  add_settings(app, settings);
  add_about(app, rows, options, wanted);
  std::vector<std::string> words;
  for (const std::string& word : arguments) words.push_back(in_our_spelling(word));
  std::set<std::string> typed;
  const auto start = program_start(app, words, typed);
  if (!start.ok()) return wrong(start.status().message());
  const std::size_t of_program = words.size() - std::min(*start, words.size());
  words.resize(std::min(*start, words.size()));
  std::reverse(words.begin(), words.end());  // the library reads them from the back
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    return answer(app.help(), 0);
  } catch (const CLI::ParseError& error) {
    return wrong(error.what());
  }
  if (wanted.version || wanted.cflags || wanted.libs) return about(wanted);
  if (arguments.empty()) return answer(app.help(), exit_code::kUsage);
  if (const Status status = take_options(app, rows, settings, typed, options); !status.ok()) {
    return wrong(status.message());
  }
  const auto program = arguments.end() - static_cast<std::ptrdiff_t>(of_program);
  return take_program({program, arguments.end()}, std::move(options));
}

}  // namespace distrun::launcher
