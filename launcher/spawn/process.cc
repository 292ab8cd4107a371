#include "launcher/spawn/process.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "launcher/spawn/executable.h"
#include "runtime/base/thread.h"

namespace distrun::launcher {
namespace {

// All values that the child needs, prepared before fork: between fork and exec only async-signal-safe calls are
// allowed.
struct Prepared {
  std::vector<char*> argv;
  std::vector<char*> shell_argv;  // for a script without #!, as the shell does it
  std::vector<char*> envp;
  std::vector<std::pair<int, int>> moves;  // {duplicate above all targets, target}
  std::string cgroup_file;
  std::string oom_text;
  cpu_set_t* cpus = nullptr;
  std::size_t cpus_size = 0;
  pid_t parent = 0;
  int report = -1;  // above all targets
  int keep_below = 3;
};

char* text_of(const std::string& text) { return const_cast<char*>(text.c_str()); }  // execve does not write to it

[[noreturn]] void give_up(int report, char step) {
  const ExecFault fault{.error = errno, .step = step};
  // If this write fails too, the parent sees the end of the report and then the exit code.
  [[maybe_unused]] const ssize_t n = ::write(report, &fault, sizeof fault);
  ::_exit(127);
}

void reset_signals(const ProcessSpec& spec) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &action, nullptr);
  action.sa_handler = SIG_IGN;
  if (spec.ignore_quit) ::sigaction(SIGQUIT, &action, nullptr);
  if (spec.ignore_terminal) {
    for (const int number : {SIGINT, SIGQUIT, SIGHUP, SIGTSTP, SIGPIPE}) ::sigaction(number, &action, nullptr);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void write_file(const char* path, const char* text, std::size_t size) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(fd, text, size);  // both uses are optional: all works without them
  ::close(fd);
}

void place_descriptors(const Prepared& prepared) {
  for (const auto& [from, to] : prepared.moves) {
    if (::dup2(from, to) < 0) give_up(prepared.report, 'f');
  }
  // The report stays open, with close-on-exec. All other descriptors that this process or its parents had open are
  // closed.
  const auto report = static_cast<unsigned>(prepared.report);
  ::syscall(SYS_close_range, static_cast<unsigned>(prepared.keep_below), report - 1, 0);
  ::syscall(SYS_close_range, report + 1, ~0U, 0);
}

// The kernel kills the process group when the other end of this pipe closes, which happens only when its holder dies.
// This works while any process holds this end, so processes that the program starts in its own group need no setup.
void tie_to(int pipe) {
  ::fcntl(pipe, F_SETOWN, -::getpid());
  ::fcntl(pipe, F_SETSIG, SIGKILL);
  ::fcntl(pipe, F_SETFL, O_ASYNC);
}

// Sets errno to ENOEXEC if it returns false.
bool is_text(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  std::array<char, kFileHead> head{};
  const ssize_t n = fd < 0 ? -1 : ::read(fd, head.data(), head.size());
  errno = ENOEXEC;
  // A shell may not be able to read it either, and says so.
  return n < 0 || form_of({head.data(), static_cast<std::size_t>(n)}) == FileForm::kText;
}

[[noreturn]] void become(const ProcessSpec& spec, const Prepared& prepared) {
  if (spec.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the line above. Then the kernel would never send the signal.
    if (::getppid() != prepared.parent) ::_exit(127);
  }
  if (spec.new_session) ::setsid();
  if (!prepared.cgroup_file.empty()) write_file(prepared.cgroup_file.c_str(), "0", 1);
  if (!prepared.oom_text.empty()) {
    write_file("/proc/self/oom_score_adj", prepared.oom_text.c_str(), prepared.oom_text.size());
  }
  place_descriptors(prepared);
  if (spec.lifeline >= 0) tie_to(spec.lifeline);
  if (spec.controlling_terminal && ::ioctl(0, TIOCSCTTY, 0) != 0) give_up(prepared.report, 'f');
  if (!spec.cwd.empty() && ::chdir(spec.cwd.c_str()) != 0) give_up(prepared.report, 'd');
  if (spec.umask) ::umask(static_cast<mode_t>(*spec.umask));
  if (prepared.cpus != nullptr && ::sched_setaffinity(0, prepared.cpus_size, prepared.cpus) != 0) {
    give_up(prepared.report, 'a');
  }
  if (spec.open_files > 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(spec.open_files, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  reset_signals(spec);
  ::execve(spec.program.c_str(), prepared.argv.data(), prepared.envp.data());
  if (errno == ENOEXEC && is_text(spec.program.c_str())) {
    ::execve("/bin/sh", prepared.shell_argv.data(), prepared.envp.data());
  }
  give_up(prepared.report, 'x');
}

int current_oom_score() {
  int value = 0;
  if (FILE* file = std::fopen("/proc/self/oom_score_adj", "re")) {
    if (std::fscanf(file, "%d", &value) != 1) value = 0;
    std::fclose(file);
  }
  return value;
}

void prepare_texts(const ProcessSpec& spec, Prepared& out) {
  for (const std::string& word : spec.argv) out.argv.push_back(text_of(word));
  out.argv.push_back(nullptr);
  static char shell[] = "sh";
  out.shell_argv = {shell, text_of(spec.program)};
  for (std::size_t i = 1; i < spec.argv.size(); ++i) out.shell_argv.push_back(text_of(spec.argv[i]));
  out.shell_argv.push_back(nullptr);
  for (const std::string& variable : spec.environment) out.envp.push_back(text_of(variable));
  out.envp.push_back(nullptr);
  if (!spec.cgroup.empty()) out.cgroup_file = spec.cgroup + "/cgroup.procs";
  if (spec.oom_score_add != 0) out.oom_text = std::to_string(std::min(1000, current_oom_score() + spec.oom_score_add));
}

void prepare_cpus(const ProcessSpec& spec, Prepared& out) {
  if (spec.cpus.empty()) return;
  const auto highest = static_cast<std::size_t>(*std::max_element(spec.cpus.begin(), spec.cpus.end()));
  out.cpus = CPU_ALLOC(highest + 1);
  out.cpus_size = CPU_ALLOC_SIZE(highest + 1);
  CPU_ZERO_S(out.cpus_size, out.cpus);
  for (const int cpu : spec.cpus) CPU_SET_S(static_cast<std::size_t>(cpu), out.cpus_size, out.cpus);
}

// Duplicates the descriptors above every target number, so that moving one cannot overwrite another. The copies are
// close-on-exec.
Status prepare_descriptors(const ProcessSpec& spec, Prepared& out, std::vector<Fd>& copies) {
  for (const auto& [from, to] : spec.descriptors) out.keep_below = std::max(out.keep_below, to + 1);
  const auto copy = [&](int fd) {
    copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, out.keep_below));
    return copies.back().get();
  };
  for (const auto& [from, to] : spec.descriptors) {
    out.moves.emplace_back(copy(from), to);
    if (out.moves.back().first < 0) return errno_status("duplicate a descriptor for a child", errno);
  }
  out.report = copy(out.report);
  if (out.report < 0) return errno_status("duplicate a descriptor for a child", errno);
  return {};
}

// Forks a child that is in the cgroup from the start. Joining later waits for every CPU (an RCU grace period: 5 to 20
// ms). Returns -1 if that is not possible: old kernels, or containers whose seccomp profile has no clone3.
pid_t fork_into(const std::string& cgroup) {
  const Fd directory(::open(cgroup.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return -1;
  clone_args arguments{};
  arguments.flags = CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<decltype(arguments.cgroup)>(directory.get());
  return static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
}

}  // namespace

Process::Process(pid_t pid, Fd pidfd, Fd exec_report)
    : pid_(pid), pidfd_(std::move(pidfd)), exec_report_(std::move(exec_report)) {}

void Process::signal(int number) const {
  if (running()) ::kill(pid_, number);
}

void Process::signal_group(int number) const {
  // The group has the child's pid as its number (new_session). Before setsid() has run, only the process exists.
  if (running() && ::kill(-pid_, number) != 0) ::kill(pid_, number);
}

std::optional<ExecFault> Process::take_exec_report() {
  if (!exec_report_.valid()) return std::nullopt;
  ExecFault fault;
  const ssize_t n = ::read(exec_report_.get(), &fault, sizeof fault);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  exec_report_.reset();
  return n == static_cast<ssize_t>(sizeof fault) ? fault : ExecFault{};
}

TimePoint next_look(const Process& process, TimePoint deadline) {
  constexpr Duration kLook = std::chrono::milliseconds(100);
  return process.pidfd() >= 0 ? deadline : std::min(deadline, TimePoint(Clock::now() + kLook));
}

std::uint64_t raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const std::uint64_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

Result<std::pair<Fd, Fd>> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_status("make a pipe", errno);
  return std::pair<Fd, Fd>(Fd(ends[0]), Fd(ends[1]));
}

Result<Process> start_process(const ProcessSpec& spec) {
  auto report = make_pipe();
  if (!report.ok()) return report.status();
  ::fcntl(report->first.get(), F_SETFL, O_NONBLOCK);
  Prepared prepared;
  std::vector<Fd> copies;
  prepared.report = report->second.get();
  prepared.parent = ::getpid();
  prepare_texts(spec, prepared);
  DISTRUN_RETURN_IF_ERROR(prepare_descriptors(spec, prepared, copies));
  prepare_cpus(spec, prepared);
  // The child begins with the dispositions of this process, which may ignore a signal. A signal that comes before
  // reset_signals() has run stays pending until then.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = spec.cgroup.empty() ? -1 : fork_into(spec.cgroup);
  if (pid == 0) prepared.cgroup_file.clear();
  if (pid < 0) pid = ::fork();
  if (pid == 0) become(spec, prepared);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (prepared.cpus != nullptr) CPU_FREE(prepared.cpus);
  if (pid < 0) {
    const Status why = errno_status("start a process", error);
    return error == EAGAIN ? Status(why.code(), why.message() + kProcessLimit) : why;
  }
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd.valid()) ::fcntl(pidfd.get(), F_SETFD, FD_CLOEXEC);
  return Process(pid, std::move(pidfd), std::move(report->first));
}

}  // namespace distrun::launcher
