#include "launcher/agent/preflight/python_module.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

#include "launcher/exit_codes.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/process.h"

namespace distrun::launcher {
namespace {

constexpr double kModuleSeconds = 10;
constexpr int kNoModule = 113;  // no Python ends with this code by itself

// Replaces the working directory in sys.path by a path that holds no module. With -I or -P, Python does not search the
// working directory, and sys.path[0] is something else.
constexpr char kNotHere[] = "import sys; sys.path[0] = sys.path[0] or '/dev/null'\n";
constexpr char kRunOurs[] =
    "import sys; sys.path[0] = sys.path[0] or '/dev/null'; del sys.argv[0]; import runpy; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)";

// Looks for the module part by part: find_spec of a submodule would import its parents, which may take seconds. An
// exception in a finder ends the script with another code. A package's own code can decide where its modules are
// (pkgutil's namespaces add directories to __path__). If that cannot be ruled out, a module that was not found may
// still exist, and the script does not report it as missing.
constexpr char kScript[] =
    "import sys\n"
    "name, path, certain = '', None, True\n"
    "def plain(spec):\n"
    "    if spec.origin is None: return True\n"
    "    code = spec.loader.get_source(spec.name)\n"
    "    return code is not None and not any(w in code for w in ('__path__', 'namespace', 'sys.modules', "
    "'meta_path'))\n"
    "for part in sys.argv[1].split('.'):\n"
    "    name += '.' * bool(name) + part\n"
    "    if name != part and path is None: sys.exit(113 * certain)\n"
    "    found = next((s for f in sys.meta_path for s in [f.find_spec(name, path)] if s), None)\n"
    "    if found is None: sys.exit(113 * certain)\n"
    "    path = found.submodule_search_locations\n"
    "    if path is not None: certain = certain and plain(found)\n";

bool is_python(const std::string& program) {
  const std::size_t slash = program.rfind('/');
  return program.substr(slash == std::string::npos ? 0 : slash + 1).starts_with("python");
}

std::optional<int> exit_code_of(const Process& process) {
  const TimePoint deadline = deadline_after(kModuleSeconds);
  Poller poller;
  for (;;) {
    const bool over = Clock::now() >= deadline;
    if (over) process.signal(SIGKILL);
    int status = 0;
    const pid_t ended = ::waitpid(process.pid(), &status, over ? 0 : WNOHANG);
    if (ended == process.pid()) return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
    if (ended < 0 && errno != EINTR) return std::nullopt;
    poller.clear();
    poller.watch(process.pidfd(), POLLIN, [](short) {});
    if (!poller.wait(next_look(process, deadline)).ok()) return std::nullopt;
  }
}

}  // namespace

std::vector<std::string> our_module(const std::string& module) { return {"-c", kRunOurs, module}; }

std::optional<ModuleQuestion> module_question(const std::vector<std::string>& command) {
  if (command.empty() || !is_python(command.front())) return std::nullopt;
  ModuleQuestion out;
  for (std::size_t i = 0; i + 1 < command.size(); ++i) {
    const std::string& word = command[i];
    const bool ours = word == "-c" && command[i + 1] == kRunOurs && i + 2 < command.size();
    if (ours || word == "-m") {
      out.module = command[i + (ours ? 2 : 1)];
      out.argv.insert(out.argv.end(), {"-c", std::string(ours ? kNotHere : "") + kScript, out.module});
      return out;
    }
    if (i > 0 && (!word.starts_with('-') || word == "-c" || word == "-")) return std::nullopt;
    out.argv.push_back(word);
    if (word == "-W" || word == "-X") out.argv.push_back(command[++i]);
  }
  return std::nullopt;
}

std::optional<Refused> missing_module(const JobCommon& common, const std::string& python, const std::string& host) {
  const auto question = module_question(common.command);
  if (!question) return std::nullopt;
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ProcessSpec spec;
  spec.program = python;
  spec.argv = question->argv;
  for (const auto& [name, value] : common.environment) spec.environment.push_back(name + "=" + value);
  spec.cwd = common.cwd;
  spec.descriptors = {{null.get(), 0}, {null.get(), 1}, {null.get(), 2}};
  spec.die_with_parent = true;
  const auto process = start_process(spec);
  if (!process.ok() || exit_code_of(*process) != kNoModule) return std::nullopt;
  return Refused{.exit_code = exit_code::kMissing,
                 .text = "module " + question->module + " is not installed for " + python + " on host " + host +
                         " (in folder " + common.cwd + "). Install it, or use the Python that has it",
                 .may_come = !question->module.starts_with("distrun")};
}

}  // namespace distrun::launcher
