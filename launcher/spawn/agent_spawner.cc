#include "launcher/spawn/agent_spawner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "launcher/plan/place/assign.h"
#include "launcher/spawn/poller.h"

namespace distrun::launcher {
namespace {

constexpr const char* kOwnLink = "/proc/self/exe";

// The file that this process runs, from the kernel's words to the process: where /proc is not mounted.
std::string without_proc() {
  const auto* const name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  char path[PATH_MAX];
  return name != nullptr && ::realpath(name, path) != nullptr ? path : "";
}

struct Pipes {
  Fd child_in;
  Fd child_out;
  FramePipe pipe;
};

Result<Pipes> make_pipes() {
  auto down = make_pipe();
  if (!down.ok()) return down.status();
  auto up = make_pipe();
  if (!up.ok()) return up.status();
  return Pipes{std::move(down->first), std::move(up->second), FramePipe(std::move(up->first), std::move(down->second))};
}

// A container image has what the program needs, but seldom the scheduler's commands.
std::string cure_of_missing(const std::string& program) {
  if (program != "srun") return {};
  return ". Inside a container, start distrun outside and run the container as the program: distrun singularity exec "
         "IMAGE python train.py. Or use --launch-with with another command that reaches the hosts";
}

// `path` is not a file that this user may execute.
std::string why_no_program(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return path + (errno == ENOENT ? " does not exist" : std::string(": ") + std::strerror(errno));
  }
  return path + (S_ISDIR(info.st_mode) ? " is a folder" : " is not executable");
}

class Spawner final : public AgentSpawner {
 public:
  explicit Spawner(SpawnOptions options) : options_(std::move(options)) {
    for (const auto& [name, value] : options_.environment) environment_.push_back(name + "=" + value);
  }

  Result<AgentHandle> start(const std::string& host, const std::string& user) override {
    if (names_this_machine(host, user, options_.own_names)) return here();
    const std::string command = agent_command(options_.binary.empty() ? own_binary() : options_.binary, options_.how);
    if (!options_.launch_with.empty()) {
      const auto own = options_.launch_with_of.find(host);
      const bool as_others = own == options_.launch_with_of.end();
      auto argv = launch_argv(as_others ? options_.launch_with : own->second, user, host, command);
      if (!argv.ok()) return argv.status();
      return elsewhere(*std::move(argv));
    }
    if (!ssh_version_) ssh_version_ = ask_ssh_version();
    return elsewhere(ssh_argv(options_.ssh, user, host, command, *ssh_version_));
  }

  [[nodiscard]] const SshOptions* ssh(const std::string& host, const std::string& user) const override {
    const bool here = names_this_machine(host, user, options_.own_names);
    return here || !options_.launch_with.empty() ? nullptr : &options_.ssh;
  }

 private:
  Result<AgentHandle> here() {
    auto pipes = make_pipes();
    if (!pipes.ok()) return pipes.status();
    ProcessSpec spec;
    spec.program = own_executable();
    spec.argv = {"distrun", "agent"};
    spec.environment = environment_;
    spec.descriptors = {{pipes->child_in.get(), 0}, {pipes->child_out.get(), 1}, {2, 2}};
    // Signals of the terminal are for the head, which then sends orders to the agent.
    spec.ignore_terminal = true;
    auto process = start_process(spec);
    if (!process.ok()) return process.status();
    return AgentHandle{.process = *std::move(process), .pipe = std::move(pipes->pipe), .errors = {}};
  }

  // Takes some milliseconds, once for each process that starts agents. A program in place of ssh may do anything, so
  // the wait has a limit.
  [[nodiscard]] int ask_ssh_version() const {
    constexpr double kMostSeconds = 2;
    const auto program = find_in_path("ssh", options_.environment);
    auto printed = make_pipe();
    const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!program || !printed.ok() || !nothing.valid()) return 0;
    ::fcntl(printed->first.get(), F_SETFL, O_NONBLOCK);
    const int out = printed->second.get();
    auto process = start_process({.program = *program,
                                  .argv = {"ssh", "-V"},
                                  .environment = environment_,
                                  .descriptors = {{nothing.get(), 0}, {out, 1}, {out, 2}}});
    printed->second.reset();
    if (!process.ok()) return 0;
    std::string text;
    const TimePoint deadline = deadline_after(kMostSeconds);
    Poller poller;
    while (printed->first.valid() && Clock::now() < deadline) {
      poller.clear();
      poller.watch(printed->first.get(), POLLIN, [&](short) { read_last_words(printed->first, text); });
      if (!poller.wait(deadline).ok()) break;
    }
    process->signal_group(SIGKILL);
    while (::waitpid(process->pid(), nullptr, 0) < 0 && errno == EINTR) continue;
    return ssh_version(text);
  }

  // Runs the command in a new session. Without a terminal, ssh cannot ask a question that the user would not see.
  Result<AgentHandle> elsewhere(std::vector<std::string> argv) {
    // The value of --launch-with stands in quotes, so no shell has expanded its paths.
    for (std::string& word : argv) word = from_home(word, options_.environment);
    const auto program = find_in_path(argv.front(), options_.environment);
    if (program && !executable_file(*program)) {
      return Status(Errc::kSystem,
                    why_no_program(*program) + ", but distrun needs it to start its agents on other hosts");
    }
    if (!program) {
      return Status(Errc::kSystem, argv.front() +
                                       " is not in PATH, but distrun needs it to start its agents on other hosts" +
                                       cure_of_missing(argv.front()));
    }
    auto pipes = make_pipes();
    if (!pipes.ok()) return pipes.status();
    auto errors = make_pipe();
    if (!errors.ok()) return errors.status();
    ::fcntl(errors->first.get(), F_SETFL, O_NONBLOCK);
    ProcessSpec spec;
    spec.program = *program;
    spec.argv = std::move(argv);
    spec.environment = environment_;
    spec.descriptors = {{pipes->child_in.get(), 0}, {pipes->child_out.get(), 1}, {errors->second.get(), 2}};
    spec.ignore_terminal = true;
    auto process = start_process(spec);
    if (!process.ok()) return process.status();
    return AgentHandle{.process = *std::move(process),
                       .pipe = std::move(pipes->pipe),
                       .errors = std::move(errors->first),
                       .remote = true};
  }

  SpawnOptions options_;
  std::vector<std::string> environment_;
  std::optional<int> ssh_version_;  // once ssh was needed
};

}  // namespace

std::string own_executable() { return ::access(kOwnLink, X_OK) == 0 ? kOwnLink : without_proc(); }

std::string own_binary() {
  constexpr std::string_view kDeleted = " (deleted)";
  char path[PATH_MAX];
  const ssize_t n = ::readlink(kOwnLink, path, sizeof path);
  if (n <= 0) return without_proc();
  std::string out(path, static_cast<std::size_t>(n));
  if (out.ends_with(kDeleted)) out.resize(out.size() - kDeleted.size());
  return out;
}

void read_last_words(Fd& fd, std::string& text, std::size_t kept) {
  char buffer[4096];
  while (fd.valid()) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return fd.reset();
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > kept) text.erase(0, text.size() - kept);
  }
}

bool executable_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::optional<std::string> find_in_path(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) return name;
  const auto path = environment.find("PATH");
  std::string rest = path == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    std::string candidate = (colon == 0 ? "." : from_home(rest.substr(0, colon), environment)) + "/" + name;
    if (executable_file(candidate)) return candidate;
    rest.erase(0, colon + 1);
  }
  return std::nullopt;
}

std::unique_ptr<AgentSpawner> make_spawner(const SpawnOptions& options) { return std::make_unique<Spawner>(options); }

}  // namespace distrun::launcher
