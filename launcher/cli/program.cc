#include "launcher/cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "launcher/agent/preflight/python_module.h"
#include "launcher/cli/paths.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/agent_spawner.h"

namespace distrun::launcher {
namespace {

struct Python {
  std::string path;
  std::string reason;
  std::string note;  // for the user: a variable names another Python. Or empty
};

// A variable that names the folder of an environment, which has its programs in bin.
struct Named {
  const char* variable;
  std::string folder;
  [[nodiscard]] std::string python() const { return folder + "/bin/python"; }
};

// The folder of the distrun program as the user reached it. A link in a virtual environment counts as part of that
// environment.
std::string directory_of(const std::string& invoked_as, const Environment& environment) {
  const auto path = find_in_path(invoked_as, environment);
  return path ? path->substr(0, path->rfind('/') + 1) : "";
}

// What `python` means in the shell; where there is none, what `python3` means.
std::optional<std::string> python_in_path(const Environment& environment) {
  auto python = find_in_path("python", environment);
  return python ? python : find_in_path("python3", environment);
}

bool in_folder(const std::string& program, const std::string& folder) {
  std::error_code unknown;
  return std::filesystem::equivalent(std::filesystem::path(program).parent_path(), folder, unknown);
}

// Many accounts activate "base" by default, so it does not count. A user who types distrun with its path means the
// Python beside it.
std::vector<Named> named_environments(const Environment& environment, bool by_path) {
  std::vector<Named> out;
  if (std::string venv = value_of(environment, "VIRTUAL_ENV"); !venv.empty()) {
    out.push_back({.variable = "VIRTUAL_ENV", .folder = std::move(venv)});
  }
  std::string conda = value_of(environment, "CONDA_PREFIX");
  if (!conda.empty() && !by_path && value_of(environment, "CONDA_DEFAULT_ENV") != "base") {
    out.push_back({.variable = "CONDA_PREFIX", .folder = std::move(conda)});
  }
  return out;
}

std::string reason_of(const Named& named) {
  const bool venv = std::string_view(named.variable) == "VIRTUAL_ENV";
  return std::string("the Python of the active ") + (venv ? "virtual" : "conda") + " environment (" + named.variable +
         ")";
}

// Why an environment's Python cannot be used, with its name.
std::string unusable(const std::string& python) {
  const int error = ::access(python.c_str(), X_OK) == 0 ? EISDIR : errno;
  return " cannot be used: " + python + ": " + std::strerror(error);
}

// The Python in the folder of the distrun command. Nothing if there is none, or a link to one that is gone: then
// `fault` says so.
std::optional<Python> python_beside(const Environment& environment, const std::string& invoked_as, std::string& fault) {
  const std::string program = own_program();
  for (const std::string& directory :
       {directory_of(invoked_as, environment), program.substr(0, program.rfind('/') + 1)}) {
    if (directory.empty()) continue;
    for (const char* name : {"python", "python3"}) {
      const std::string path = directory + name;
      if (executable_file(path)) {
        return Python{.path = path, .reason = "the Python beside the distrun command", .note = ""};
      }
      std::error_code unknown;
      const bool there = std::filesystem::exists(std::filesystem::symlink_status(path, unknown));
      if (there && fault.empty()) fault = "The one beside the distrun command" + unusable(path);
    }
  }
  return std::nullopt;
}

// Why the Python of this environment is not the one that runs.
std::string fault_of(const Named& named) {
  return named.variable + ("=" + named.folder) +
         (executable_file(named.python()) ? " is not first in PATH" : unusable(named.python()));
}

// Where PATH and a variable disagree, PATH counts, as for a command that is typed into the shell.
Python find_python(const Environment& environment, const std::string& invoked_as) {
  const bool by_path = invoked_as.find('/') != std::string::npos;
  const std::vector<Named> named = named_environments(environment, by_path);
  const auto in_path = python_in_path(environment);
  const auto active = std::find_if(named.begin(), named.end(), [&in_path](const Named& one) {
    return executable_file(one.python()) && (!in_path || in_folder(*in_path, one.folder + "/bin"));
  });
  if (active != named.end()) return {.path = active->python(), .reason = reason_of(*active), .note = ""};
  std::string fault;
  const auto beside = python_beside(environment, invoked_as, fault);
  Python out{.path = "python3", .reason = "the first python3 in PATH", .note = ""};
  if (in_path && !named.empty() && !(by_path && beside)) {
    out = {.path = *in_path, .reason = "the first Python in PATH", .note = ""};
  } else if (beside) {
    out = *beside;
    fault.clear();
  }
  if (!named.empty()) fault = in_folder(out.path, named.front().folder + "/bin") ? "" : fault_of(named.front());
  if (!fault.empty()) out.note = "ranks run " + out.path + ", " + out.reason + ". " + fault;
  return out;
}

bool is_python(const std::string& program) {
  const std::size_t slash = program.rfind('/');
  return program.substr(slash == std::string::npos ? 0 : slash + 1).starts_with("python");
}

// The script after "python" and its options. Stops at -m, -c and at the value of an option.
std::string script_behind(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].ends_with(".py")) return words[i];
    if (!words[i].starts_with('-') || words[i] == "-m" || words[i] == "-c") break;
  }
  return {};
}

// Inserts the words `by_way_of` before the script or module that Python is to run.
Status run_through(const std::vector<std::string>& by_way_of, const std::string& flag, const std::string& otherwise,
                   std::vector<std::string>& words) {
  std::size_t at = 1;
  while (at < words.size() && words[at].starts_with('-') && words[at] != "-m" && words[at] != "-c" &&
         words[at] != "-") {
    at += words[at] == "-W" || words[at] == "-X" ? 2U : 1U;
  }
  if (!is_python(words.front()) || at >= words.size() || words[at] == "-c" || words[at] == "-") {
    return {Errc::kInvalidArgument, flag +
                                        " needs a Python script or module, as in python train.py, and this is "
                                        "neither: " +
                                        join(words, " ") + ". Or " + otherwise};
  }
  words.insert(words.begin() + static_cast<std::ptrdiff_t>(at), by_way_of.begin(), by_way_of.end());
  return {};
}

}  // namespace

Command resolve_command(const Options& options, const Environment& environment, const std::string& invoked_as) {
  Command out;
  const std::string& first = options.program.front();
  const bool script = !options.module && first.ends_with(".py");
  if (options.module || script) {
    const Python python = find_python(environment, invoked_as);
    out.words.push_back(python.path);
    out.reason = python.reason;
    out.note = python.note;
    if (options.module) out.words.emplace_back("-m");
    if (script) out.script = first;
  }
  out.words.insert(out.words.end(), options.program.begin(), options.program.end());
  const bool typed = !options.module && !script && is_python(first);
  out.source = typed ? script_behind(options.program) : out.script;
  out.python = typed ? first : find_python(environment, invoked_as).path;
  return out;
}

std::string note_on_dashes(const Options& options) {
  const std::vector<std::string>& words = options.program;
  const bool as_for_torchrun = options.module || words.front().ends_with(".py");
  if (!as_for_torchrun || words.size() < 2 || words[1] != "--") return {};
  return "the program gets the -- after " + words.front() +
         " as an argument (torchrun removes it). Leave it out if options of the program follow it";
}

// Python runs the outermost of our modules first. Each runs the next one, and the last runs the program.
Result<std::vector<std::string>> amended(const Options& options, bool protects, std::vector<std::string> words) {
  const auto way = [](const std::string& module, bool first) {
    return first ? our_module(module) : std::vector<std::string>{"-m", module};
  };
  const bool torch = !options.frameworks.torch_backend.empty();
  if (options.frameworks.tf_keras3_mwms) {
    DISTRUN_RETURN_IF_ERROR(run_through(way("distrun._keras3_mwms", !torch && !protects), "--tf-keras3-mwms",
                                        "call distrun.tensorflow.patch_keras_mwms() in the program", words));
  }
  if (torch) {
    DISTRUN_RETURN_IF_ERROR(
        run_through(way("distrun._torch_backend", !protects), "--torch-backend",
                    "import distrun.torch.c10d in the program and call init_process_group(\"distrun\")", words));
  }
  // A program that is not Python may open sockets itself. The user gets a message that those are not protected.
  std::vector<std::string> guarded = words;
  const bool runs_python = protects && run_through(our_module("distrun._protected"), "", "", guarded).ok();
  return runs_python ? guarded : words;
}

}  // namespace distrun::launcher
