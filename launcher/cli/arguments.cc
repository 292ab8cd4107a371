// Only this file and config_file.cc include the command-line library. It adds 10 s of compile time to each file.
#include "launcher/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <set>

#include "launcher/cli/config_file.h"
#include "launcher/cli/help/help.h"
#include "launcher/cli/help/other_launchers_options.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/paths.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/environment/program_input.h"
#include "launcher/plan/hosts/pasted.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/agent_spawner.h"
#include "launcher/version.h"
#include "runtime/base/setting_values.h"
#include "runtime/base/settings.h"

namespace distrun::launcher {
namespace {

// Groups of the command-line library. They mark the options; the help does not show them.
constexpr char kSetting[] = "settings of the runtime";
constexpr char kHidden[] = "";

// Replaces a leading ~ by the home. Returns what is wrong with the path; empty: nothing.
std::string expand_home(std::string& path, const Environment& environment) {
  const std::string fault = fault_of_home(path, environment);
  if (!fault.empty()) return path + ": " + fault;
  path = from_home(path, environment);
  return {};
}

struct Wanted {
  bool version = false;
  bool cflags = false;
  bool libs = false;
};

// The texts are parsed in read(), after the library has taken all words. Each option needs a text for the help
// (launcher/cli/help/texts.h), which also has its other names and what stands for its value.
class Rows {
 public:
  // `environment` has the home of the user, for paths.
  Rows(CLI::App& app, const Environment& environment) : app_(app), environment_(environment) {}

  template <class Value, class Read>
  void value(const char* name, Value& out, Read take) {
    std::string& text = texts_.emplace_back();
    CLI::Option* option = add(name, text);
    readers_.push_back([option, name = std::string(name), &text, &out, take] {
      return option->count() > 0 ? take(name, text, out) : Status();
    });
  }
  template <class Value>
  void choice(const char* name, Value& out) {
    value(name, out, [](const std::string& option, const std::string& text, Value& chosen) {
      return read_choice(option, text, chosen);
    });
  }
  void text(const char* name, std::string& out) { add(name, out); }
  // A path on this host. bash leaves --output-dir=~/logs as it is, and a config file passes no shell.
  void path(const char* name, std::string& out) {
    value(name, out, [this](const std::string& option, const std::string& text, std::string& taken) {
      taken = text;
      const std::string fault = expand_home(taken, environment_);
      return fault.empty() ? Status() : Status(Errc::kInvalidArgument, option + " " + fault);
    });
  }
  // The file of options. The library reads it while it parses the words.
  void config(const char* name) {
    app_.set_config(name)->type_name("FILE")->transform(
        CLI::Validator([this](std::string& text) { return expand_home(text, environment_); }, ""));
  }
  void list(const char* name, std::vector<std::string>& out) {
    add(name, out)->expected(1)->take_all()->allow_extra_args(false);
  }
  template <class Value>
  void flag(const char* name, Value& out) {
    app_.add_flag(text_of(name).names, out);
  }
  // A flag that sets a value other than true.
  template <class Value>
  void flag(const char* name, Value& out, Value set) {
    bool& given = flags_.emplace_back(false);
    flag(name, given);
    readers_.push_back([&given, &out, set] {
      if (given) out = set;
      return Status();
    });
  }
  // A flag that may have a value, as in --explain=json; without one it has the value `alone`.
  void flag_or_text(const char* name, const char* alone, std::string& out) {
    app_.add_flag(text_of(name).names + "{" + alone + "}", out);
  }

  [[nodiscard]] Status read() const {
    for (const auto& reader : readers_) DISTRUN_RETURN_IF_ERROR(reader());
    return {};
  }

 private:
  static const OptionText& text_of(const char* name) {
    const OptionText* found = find_option_text(name);
    DISTRUN_CHECK(found != nullptr, std::string("no help for the option ") + name);
    return *found;
  }
  template <class Value>
  CLI::Option* add(const char* name, Value& out) {
    const OptionText& row = text_of(name);
    return app_.add_option(row.names, out)->type_name(row.value);
  }

  CLI::App& app_;
  const Environment& environment_;
  std::deque<std::string> texts_;
  std::deque<bool> flags_;
  std::vector<std::function<Status()>> readers_;
};

void add_start(CLI::App& app, Rows& rows, Options& options) {
  PlacementOptions& placement = options.placement;
  rows.value("-n", placement.ranks,
             [](const std::string&, const std::string& text, int& out) { return read_ranks("-np", text, out); });
  rows.value("--nproc-per-node", placement.ranks_per_host, read_ranks);
  rows.flag("--oversubscribe", placement.oversubscribe);
  rows.config("--config");
  app.config_formatter(std::make_shared<ConfigFile>(app));
  app.allow_config_extras(CLI::config_extras_mode::error);
}

void add_hosts(CLI::App& app, Rows& rows, HostOptions& hosts) {
  rows.text("-H", hosts.list);
  rows.path("--hostfile", hosts.file);
  rows.flag("--no-detect", hosts.detect, false);
  rows.value("--network", hosts.network, read_network);
  rows.value("--ssh-port", hosts.ssh.port, read_port);
  rows.text("--ssh-identity", hosts.ssh.identity);  // ssh expands ~ on the host where it runs
  rows.list("--ssh-option", hosts.ssh.options);
  rows.flag_or_text("--mpi", "mpirun", hosts.mpi);
  rows.flag("--allow-run-as-root", hosts.mpi_as_root);
  rows.value("--agents", hosts.agents, read_ranks);
  rows.value("--listen", hosts.listen, read_listen);
  rows.path("--key-file", hosts.key_file);
  rows.text("--launch-with", hosts.launch_with);
  app.add_option("--start-fan-out", hosts.fan_out, "Agents that one host starts")
      ->check(CLI::Range(1, 1024))
      ->group(kHidden);
}

void add_placement(CLI::App& app, Rows& rows, PlacementOptions& placement) {
  rows.choice("--bind-to", placement.bind_to);
  rows.choice("--gpu-visibility", placement.gpu_visibility);
  rows.value("--gpus-per-rank", placement.gpus_per_rank, read_gpus);
  rows.flag("--report-bindings", placement.report_bindings);
  app.add_option("--sysroot", placement.sysroot, "Read /sys and /proc from a copied tree")->group(kHidden);
}

void add_environment(Rows& rows, EnvironmentOptions& environment) {
  rows.list("-x", environment.forwarded);
  rows.choice("--env", environment.mode);
  rows.path("--env-file", environment.file);
}

void add_frameworks(Rows& rows, FrameworkOptions& frameworks) {
  rows.flag("--tf", frameworks.tf);
  rows.text("--tf-roles", frameworks.tf_roles);
  rows.flag("--tf-own-servers", frameworks.tf_servers, TfServers::kOwn);
  rows.flag("--tf-keras3-mwms", frameworks.tf_keras3_mwms);
  rows.text("--torch-backend", frameworks.torch_backend);
  rows.flag("--no-tf-config", frameworks.tf_config, false);
  rows.flag("--horovod", frameworks.horovod);
  rows.choice("--mimic", frameworks.mimic);
}

void add_output(Rows& rows, OutputOptions& output) {
  rows.choice("--tag", output.tag);
  rows.flag("--timestamp", output.timestamp);
  rows.flag("--fold", output.fold, Folding::kAlways);
  rows.flag("--no-fold", output.fold, Folding::kNever);
  rows.value("--stdin", output.input, read_stdin);
  rows.value("--tty", output.input, read_tty);
  rows.path("--output-dir", output.directory);
  rows.path("--report", output.report);
  rows.flag("--all-errors", output.all_errors);
}

void add_end(Rows& rows, EndOptions& end) {
  rows.value("--timeout", end.timeout, read_seconds);
  rows.value("--grace", end.grace, read_seconds);
}

void add_about(CLI::App& app, Rows& rows, Options& options, Wanted& wanted) {
  rows.flag_or_text("--explain", "text", options.explain);
  rows.flag("-v", options.verbose);
  rows.flag("--version", wanted.version);
  rows.flag("--cflags", wanted.cflags);
  rows.flag("--libs", wanted.libs);
  app.set_help_flag("-h,--help");
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
    if (rows[i].type == "flag") {  // without a value it means true
      app.add_flag(flag_of(rows[i].name) + "{true}", values[i])->group(kSetting);
    } else {
      app.add_option(flag_of(rows[i].name), values[i])->type_name(std::string(rows[i].value))->group(kSetting);
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

ParseOutcome answer(std::string text, int exit_code) {
  return {.run = false, .text = std::move(text), .exit_code = exit_code};
}

ParseOutcome wrong(const std::string& text) {
  return answer("distrun: " + text + note_on_pasted(text) + "\nType distrun --help for all options.\n",
                exit_code::kUsage);
}

// The long options of distrun and its settings, as they are typed.
std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options()) {
    const bool hidden = option->get_group().empty();
    for (const std::string& name : option->get_lnames()) {
      if (!hidden) out.push_back("--" + name);
    }
  }
  return out;
}

// True for a setting of type flag: `--encrypt` alone means true, and `--encrypt no` means `--encrypt=no`.
bool is_flag_setting(const CLI::Option& option) {
  return option.get_group() == kSetting && option.get_items_expected_min() == 0;
}

void attach_flag_value(std::vector<std::string>& words, std::size_t at) {
  if (at + 1 >= words.size() || !flag().parse(words[at + 1])) return;
  words[at] += "=" + words[at + 1];
  words.erase(words.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

// The library's own texts for these two mistakes name no option as it was typed.
Status check_once_with_value(const CLI::Option& option, const std::string& name, bool again, bool has_value) {
  const std::string shown = name == "--num-proc" ? "-np" : name;
  if (!has_value) return {Errc::kInvalidArgument, shown + " needs a value: " + option.get_type_name()};
  const bool repeated = again && option.get_multi_option_policy() != CLI::MultiOptionPolicy::TakeAll;
  if (!repeated) return {};
  return {Errc::kInvalidArgument, shown + " is given twice: leave one of them out"};
}

// Returns where the options end and the program begins: at "-m", after "--", or at the first word that is neither an
// option nor the value of one. Every word from there on belongs to the program, even if it looks like an option.
// `typed` gets the options before it. Writes them into `words` in distrun's own spelling.
Result<std::size_t> program_start(const CLI::App& app, std::vector<std::string>& words, std::set<std::string>& typed) {
  std::string unknown;
  const auto add_hint = [&unknown](const std::string& name, std::string_view instead) {
    unknown += (unknown.empty() ? "" : "\ndistrun: ") + name + " is not an option of distrun" + std::string(instead);
  };
  std::set<const CLI::Option*> seen;
  std::size_t i = 0;
  for (; i < words.size(); ++i) {
    if (words[i] == "--" || words[i] == "-m" || words[i] == "-" || !words[i].starts_with('-')) break;
    const std::string typed_word = words[i];
    words[i] = in_our_spelling(typed_word);
    const std::string& word = words[i];
    if (const OtherLaunchersOption* other = find_other_launchers_option(word)) {
      const std::size_t end = typed_word.find('=');
      add_hint(typed_word.substr(0, end), ": " + std::string(other->instead));
      // Intel MPI's -genv takes a name and a value, or NAME=VALUE.
      const bool joined = other->values == 2 && i + 1 < words.size() && words[i + 1].find('=') != std::string::npos;
      if (end == word.npos) i += joined ? 1 : static_cast<std::size_t>(other->values);
      continue;
    }
    const bool spelt = word.starts_with("--");
    const std::string name = spelt ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) {
      add_hint(typed_word, did_you_mean(word.substr(0, word.find('=')), long_options(app)));
      break;  // it is unknown whether the next word is its value
    }
    typed.insert(name);
    if (is_flag_setting(*option) && name == word) attach_flag_value(words, i);
    const bool attached = spelt ? name.size() < words[i].size() : words[i].size() > 2;
    const bool takes_value = option->get_items_expected_min() > 0;
    if (takes_value) {
      if (!attached) ++i;
      const bool again = !seen.insert(option).second;
      DISTRUN_RETURN_IF_ERROR(check_once_with_value(*option, name, again, attached || i < words.size()));
    }
    const bool empty = i < words.size() && (attached ? spelt && words[i].size() == name.size() + 1 : words[i].empty());
    // A setting that is no flag may be empty. For other options an empty value means that a shell variable was not set.
    const bool may_be = option->get_group() == kSetting ? takes_value : !takes_value;
    if (empty && !may_be) {
      return Status(Errc::kInvalidArgument, name + " has an empty value. Is a variable of the shell not set?");
    }
  }
  if (!unknown.empty()) return Status(Errc::kInvalidArgument, unknown);
  return std::min(i, words.size());
}

// mpirun starts several programs as one job with `-np 1 ./a : -np 3 ./b`. A lone `:` may also be a program's argument.
bool continues_as_for_mpirun(const std::vector<std::string>& program) {
  static constexpr std::array<std::string_view, 7> kOfMpirun = {"-n", "-np", "--np", "-c", "-H", "-host", "--host"};
  for (std::size_t i = 0; i + 1 < program.size(); ++i) {
    const bool option = std::find(kOfMpirun.begin(), kOfMpirun.end(), program[i + 1]) != kOfMpirun.end();
    if (program[i] == ":" && option) return true;
  }
  return false;
}

// The program and its script may stand in quotes, where no shell has expanded ~.
Status expand_homes(std::vector<std::string>& program, const Environment& environment) {
  const std::optional<std::size_t> script = script_of(program);
  for (const std::size_t at : {std::size_t{0}, script.value_or(0)}) {
    const std::string fault = expand_home(program[at], environment);
    if (!fault.empty()) return {Errc::kInvalidArgument, fault};
  }
  return {};
}

// " -np": a word of the shell that has kept a blank, before an option.
bool begins_with_blank(const std::string& word) {
  const std::string_view option = trim(word);
  return option.starts_with('-') && word.front() != '-';
}

ParseOutcome take_program(std::vector<std::string> rest, Options options, const Environment& environment) {
  const bool as_it_is = !rest.empty() && rest.front() == "--";
  if (!rest.empty() && begins_with_pasted(rest.front())) {
    return wrong(in_quotes(rest.front()) + " is no option, and no program has such a name");
  }
  if (!rest.empty() && begins_with_blank(rest.front())) {
    return wrong(in_quotes(rest.front()) + " begins with a blank: remove it");
  }
  if (!as_it_is && continues_as_for_mpirun(rest)) {
    return wrong(
        "a job runs one program; distrun does not join several with : as mpirun does. Start a script that chooses "
        "by its rank: sh -c 'case $RANK in 0) exec ./a;; *) exec ./b;; esac'. If : is an argument of your program, "
        "write -- before the program");
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
    return wrong("no program is given. Write it after the options: distrun -np 4 python train.py");
  }
  if (options.program.front().empty())
    return wrong("the name of the program is empty. Is a variable of the shell not set?");
  if (!options.module && names_standard_input(options.program.front())) {
    return wrong(options.program.front() +
                 " is no program. Write the program that reads it before it, as in distrun -np 4 python -");
  }
  if (!options.module) {
    if (const Status status = expand_homes(options.program, environment); !status.ok()) return wrong(status.message());
  }
  InputRequest& input = options.output.input;
  input.program = !input.named && !options.module && reads_program_from_input(options.program);
  if (input.program) input.rank = InputRequest::kAll;
  if (!options.explain.empty() && options.explain != "text" && options.explain != "json") {
    return wrong("--explain=" + options.explain + " is not valid: write --explain or --explain=json");
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

// A first word that looks like a command of distrun, and is no program.
std::string fault_of_command(const std::string& word, const Environment& environment) {
  if (word.starts_with('-') || word.find_first_of("./") != std::string::npos) return {};
  const std::string meant = did_you_mean(word, {"check", "agent", "help"});
  if (meant.empty() || find_in_path(word, environment)) return {};
  return word + " is no command of distrun, and no program of this name is in PATH" + meant;
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
    return {Errc::kInvalidArgument, "--fold and --no-fold cannot be used together: leave one of them out"};
  }
  DISTRUN_RETURN_IF_ERROR(complete_options(given, options));
  DISTRUN_RETURN_IF_ERROR(check_typed(typed, options));
  return take_settings(app, settings, typed, options.environment);
}

}  // namespace

ParseOutcome parse_arguments(const std::vector<std::string>& arguments, const Environment& environment) {
  CLI::App app("", "distrun");
  Options options;
  Rows rows(app, environment);
  Wanted wanted;
  std::vector<std::string> settings;
  add_start(app, rows, options);
  add_hosts(app, rows, options.hosts);
  add_placement(app, rows, options.placement);
  add_environment(rows, options.environment);
  add_frameworks(rows, options.frameworks);
  add_output(rows, options.output);
  add_end(rows, options.end);
  add_settings(app, settings);
  add_about(app, rows, options, wanted);
  std::vector<std::string> words = arguments;
  std::set<std::string> typed;
  const auto start = program_start(app, words, typed);
  if (!start.ok()) return wrong(start.status().message());
  const std::size_t of_program = words.size() - std::min(*start, words.size());
  words.resize(std::min(*start, words.size()));
  std::reverse(words.begin(), words.end());  // the library reads them from the back
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    return answer(help_text(HelpOf::kDistrun), 0);
  } catch (const CLI::FileError&) {
    return wrong("cannot read the file of --config: " + app.get_config_ptr()->as<std::string>());
  } catch (const CLI::ParseError& error) {
    return wrong(error.what());
  }
  if (wanted.version || wanted.cflags || wanted.libs) return about(wanted);
  if (arguments.empty()) return answer(help_text(HelpOf::kDistrun), exit_code::kUsage);
  if (const Status status = take_options(app, rows, settings, typed, options); !status.ok()) {
    return wrong(status.message());
  }
  if (const std::string meant = fault_of_command(arguments.front(), environment); !meant.empty()) return wrong(meant);
  const auto program = arguments.end() - static_cast<std::ptrdiff_t>(of_program);
  return take_program({program, arguments.end()}, std::move(options), environment);
}

}  // namespace distrun::launcher
