#include "launcher/cli/check.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "launcher/agent/preflight/python_module.h"
#include "launcher/agent/preflight/scan.h"
#include "launcher/cli/help/other_launchers_options.h"
#include "launcher/cli/help/texts.h"
#include "launcher/cli/host_source.h"
#include "launcher/cli/paths.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/pasted.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/version.h"
#include "runtime/base/settings.h"

namespace distrun::launcher {
namespace {

// distrun_query of the C API. The launcher does not link the upper floors of the runtime, so it loads the library that
// ranks load, and asks that.
using Query = std::int64_t (*)(void* session, const char* what, char* buffer, std::uint64_t size);

struct Answer {
  std::string text;   // the lines; empty if there is a fault
  std::string fault;  // why there are no lines
};

using Row = std::vector<std::string>;

// A check of hosts must report the hosts that do not answer instead of waiting for them.
constexpr double kHostCheckSeconds = 60;

Answer ask_library(const char* what) {
  const std::string path = library_path();
  if (path.empty()) return {.fault = "libdistrun.so was not found beside " + own_program() + ". Install distrun again"};
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = ::dlerror();
    return {.fault = path + " cannot be loaded: " + (error == nullptr ? "the system gives no reason" : error)};
  }
  const auto query = reinterpret_cast<Query>(::dlsym(library, "distrun_query"));
  if (query == nullptr)
    return {.fault = path + " is not of this version of distrun (it has no distrun_query). Install distrun again"};
  const std::int64_t size = query(nullptr, what, nullptr, 0);
  if (size < 0)
    return {.fault = path + " is not of this version of distrun (it does not answer). Install distrun again"};
  std::string text(static_cast<std::size_t>(size) + 1, '\0');
  query(nullptr, what, text.data(), text.size());
  text.resize(static_cast<std::size_t>(size));
  return {.text = text};
}

bool is_warning(const Row& row) { return row.front() == "warning"; }

// Rows of two columns: name and state of each backend, or "warning" and a text about a file that is no backend.
std::vector<Row> backend_rows(const std::string& text) {
  std::vector<Row> rows;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t name_end = line.find_first_of(": ");
    if (line.empty() || name_end == std::string_view::npos) continue;
    const std::string_view state = trim(line.substr(line.find_first_not_of(": ", name_end)));
    rows.push_back({std::string(line.substr(0, name_end)), std::string(state)});
  }
  return rows;
}

std::string machine_text(const Topology& topology) {
  std::string out = "  " + counted(topology.cpus.size(), "CPU") + " allowed, " +
                    counted(static_cast<std::size_t>(count_cores(topology.cpus)), "core") + ", " +
                    counted(topology.gpus.size(), "GPU") + "\n";
  for (const Gpu& gpu : topology.gpus) {
    out += "  GPU " + gpu.bus + " " + gpu.model + " " + gpu.uuid + ", NUMA node " + std::to_string(gpu.node) + "\n";
  }
  return out;
}

std::string as_text(const Topology& topology, const Answer& backends, bool build) {
  std::vector<std::string> found = libraries();
  std::string out = std::string("distrun ") + kVersion + "\nprogram: " + own_program() +
                    "\nlibrary: " + (found.empty() ? "not found" : found.front()) + "\n";
  if (found.size() > 1) {
    found.erase(found.begin());
    out += "older installations, not used by this program: " + join(found, " ") + "\n";
  }
  if (!build) out += "machine:\n" + machine_text(topology);
  out += "backends:\n";
  if (!backends.fault.empty()) return out + "  " + backends.fault + "\n";
  return out + table(backend_rows(backends.text));
}

std::string as_json(const Topology& topology, const Answer& backends) {
  std::vector<std::string> items;
  std::vector<std::string> warnings;
  for (const Row& row : backend_rows(backends.text)) {
    if (is_warning(row)) {
      warnings.push_back(json_quote(row[1]));
    } else {
      items.push_back(json_quote(row[0]) + ": " + json_quote(row[1]));
    }
  }
  std::vector<std::string> gpus;
  for (const Gpu& gpu : topology.gpus) {
    gpus.push_back("{\"bus\": " + json_quote(gpu.bus) + ", \"model\": " + json_quote(gpu.model) +
                   ", \"uuid\": " + json_quote(gpu.uuid) + ", \"numa_node\": " + std::to_string(gpu.node) + "}");
  }
  return std::string("{\"version\": ") + json_quote(kVersion) + ", \"program\": " + json_quote(own_program()) +
         ", \"library\": " + json_quote(library_path()) + ", \"cpus\": " + std::to_string(topology.cpus.size()) +
         ", \"cores\": " + std::to_string(count_cores(topology.cpus)) + ", \"gpus\": [" + join(gpus, ", ") +
         "], \"backends\": {" + join(items, ", ") + "}, \"warnings\": [" + join(warnings, ", ") +
         "], \"fault\": " + json_quote(backends.fault) + "}\n";
}

// The Python beside this program (as in a virtual environment), else the first one on PATH.
std::string python_program() {
  const std::string program = own_program();
  std::string beside = program.substr(0, program.rfind('/') + 1) + "python3";
  return ::access(beside.c_str(), X_OK) == 0 ? beside : "python3";
}

ParseOutcome check_refused(const std::string& text) {
  return {.text = "distrun: " + text + note_on_pasted(text) + "\n", .exit_code = exit_code::kUsage};
}

// The options that the check sets itself.
constexpr std::array<std::string_view, 4> kSetByCheck = {"--nproc-per-node", "--ppn", "--tag", "--bind-to"};

// The options of distrun that a check of hosts takes too are about reaching hosts, or are settings.
constexpr std::array<std::string_view, 5> kTopicsOfHosts = {"hosts", "waits", "backends", "security", "settings"};

std::vector<std::string> own_options() {
  std::vector<std::string> names;
  for (const OptionText& option : option_texts()) {
    const bool of_hosts = std::find(kTopicsOfHosts.begin(), kTopicsOfHosts.end(), option.topic) != kTopicsOfHosts.end();
    if (!is_of(option, HelpOf::kCheck) && !of_hosts) continue;
    for (std::string& spelling : names_of(option)) names.push_back(std::move(spelling));
  }
  return names;
}

// Why a word is refused by a check of this machine.
std::string fault_of_word(const std::string& typed) {
  const std::string word = in_our_spelling(typed);
  const std::string name = word.substr(0, word.find('='));
  if (!word.starts_with('-')) return typed + " is not an option of distrun check. Type distrun check --help";
  if (find_option_text(name) != nullptr) return typed + " needs hosts: give -H, --hostfile or --config";
  return typed + " is not an option of distrun check" + did_you_mean(name, own_options());
}

// A check of hosts passes its words on as those of a job, and a job's answer to a wrong one is about the job. Returns
// the check's own answer; empty if it has none.
std::string fault_of_host_check(const std::vector<std::string>& arguments) {
  const std::vector<std::string> own = own_options();
  for (const std::string& typed : arguments) {
    const std::string word = in_our_spelling(typed);
    const std::string name = word.substr(0, word.find('='));
    if (!word.starts_with("--") || find_other_launchers_option(word) != nullptr) continue;
    const bool known = find_option_text(name) != nullptr || std::find(own.begin(), own.end(), name) != own.end();
    if (!known) return typed + " is not an option of distrun check" + did_you_mean(name, own);
  }
  // The last option took the first word of the program that a check starts.
  const OptionText* const last = arguments.empty() ? nullptr : find_option_text(in_our_spelling(arguments.back()));
  return last == nullptr || last->value.empty() ? "" : arguments.back() + " needs a value: " + last->value;
}

}  // namespace

bool checks_hosts(const std::vector<std::string>& arguments, const Environment& environment) {
  const auto names_hosts = [](const std::string& word) {
    for (const std::string_view option :
         {"-H", "--host", "-host", "--agents", "--machinefile", "-machinefile", "--config"}) {
      if (word.starts_with(option)) return true;
    }
    return false;
  };
  if (std::any_of(arguments.begin(), arguments.end(), names_hosts)) return true;
  const bool here = std::any_of(arguments.begin(), arguments.end(), [](const std::string& typed) {
    const std::string word = in_our_spelling(typed);
    return word == "--build" || word == "--no-detect";
  });
  return !here && in_allocation_of_several(environment);
}

ParseOutcome host_check_job(const std::vector<std::string>& arguments, const Environment& environment) {
  for (const std::string& typed : arguments) {
    const std::string word = in_our_spelling(typed);
    if (std::find(kSetByCheck.begin(), kSetByCheck.end(), word.substr(0, word.find('='))) == kSetByCheck.end())
      continue;
    return check_refused("leave out " + typed + ": a check starts one rank on each host, and places it itself");
  }
  std::vector<std::string> job = {"--ppn", "1", "--tag", "none", "--bind-to", "none"};
  std::vector<std::string> program = our_module("distrun.host_check");
  program.insert(program.begin(), python_program());
  for (const std::string& word : arguments) (word == "--json" ? program : job).push_back(word);
  job.insert(job.end(), program.begin(), program.end());
  ParseOutcome outcome = parse_arguments(job, environment);
  if (!outcome.run) {
    if (const std::string fault = fault_of_host_check(arguments); !fault.empty()) return check_refused(fault);
  }
  // The program starts earlier if some word is neither an option nor the value of one.
  if (outcome.run && outcome.options.program != program) {
    const std::string word = outcome.options.module ? "-m" : outcome.options.program.front();
    return check_refused(word + " is not an option of distrun check. A check runs no program: leave it out");
  }
  outcome.options.end.check = true;
  if (outcome.options.end.timeout == 0) outcome.options.end.timeout = kHostCheckSeconds;
  outcome.options.placement.ranks = 0;  // a --config file may set those of a job
  return outcome;
}

int check_main(const std::vector<std::string>& arguments, const Environment& environment) {
  bool build = false;
  bool json = false;
  for (const std::string& typed : arguments) {
    const std::string word = in_our_spelling(typed);
    if (word == "--build") {
      build = true;
    } else if (word == "--json") {
      json = true;
    } else if (word == "--no-detect") {
      continue;
    } else {
      const ParseOutcome refused = check_refused(fault_of_word(typed));
      std::fputs(refused.text.c_str(), stderr);
      return refused.exit_code;
    }
  }
  // With wrong settings the library would answer with the text of the error.
  if (const auto settings = read_settings(environment, {}); !settings.ok()) {
    std::fprintf(stderr, "distrun: %s\n", settings.status().message().c_str());
    return exit_code::kUsage;
  }
  const Topology topology = scan_topology("/");
  const Answer backends = ask_library("backends");
  std::fputs((json ? as_json(topology, backends) : as_text(topology, backends, build)).c_str(), stdout);
  return backends.fault.empty() ? 0 : exit_code::kUnusable;
}

}  // namespace distrun::launcher
