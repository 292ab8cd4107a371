#include "launcher/cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "launcher/agent/preflight/python_module.h"
#include "launcher/cli/paths.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/agent_spawner.h"

namespace distrun::launcher {
namespace {

struct Python {
  std::string path;
  std::string reason;
};

bool executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

// The folder of the distrun program as the user reached it. A link in a virtual environment counts as part of that
// environment.
std::string directory_of(const std::string& invoked_as, const Environment& environment) {
  if (const std::size_t slash = invoked_as.rfind('/'); slash != std::string::npos)
    return invoked_as.substr(0, slash + 1);
  const auto path = environment.find("PATH");
  std::string rest = path == environment.end() ? "" : path->second;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const std::string directory = rest.substr(0, colon) + "/";
    if (executable(directory + invoked_as)) return directory;
    rest.erase(0, colon + 1);
  }
  return {};
}

// True if the first python on PATH is in this folder. conda puts its folder first, but that of a virtual environment
// that is not activated may precede it.
bool leads_path(const std::string& folder, const Environment& environment) {
  const auto python = find_in_path("python", environment);
  std::error_code unknown;
  return python && std::filesystem::equivalent(std::filesystem::path(*python).parent_path(), folder, unknown);
}

Python find_python(const Environment& environment, const std::string& invoked_as) {
  if (const auto venv = environment.find("VIRTUAL_ENV");
      venv != environment.end() && executable(venv->second + "/bin/python")) {
    return {venv->second + "/bin/python", "the Python of the active virtual environment (VIRTUAL_ENV)"};
  }
  // Many accounts activate "base" by default, so it does not count. A user who types distrun with its path means the
  // Python beside it.
  const bool by_path = invoked_as.find('/') != std::string::npos;
  if (const std::string conda = value_of(environment, "CONDA_PREFIX");
      !conda.empty() && !by_path && value_of(environment, "CONDA_DEFAULT_ENV") != "base" &&
      leads_path(conda + "/bin", environment)) {
    return {conda + "/bin/python", "the Python of the active conda environment (CONDA_PREFIX)"};
  }
  const std::string program = own_program();
  for (const std::string& directory :
       {directory_of(invoked_as, environment), program.substr(0, program.rfind('/') + 1)}) {
    if (directory.empty()) continue;
    for (const char* name : {"python", "python3"}) {
      if (executable(directory + name)) return {directory + name, "the Python beside the distrun command"};
    }
  }
  return {"python3", "the first python3 in PATH"};
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
    out.reason = python.path + ": " + python.reason;
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
