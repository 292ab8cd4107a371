// A child process as a value: how to start one, and a handle that can only mean the process that was started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct ProcessSpec {
  std::string program;  // a path; no search
  std::vector<std::string> argv;
  std::vector<std::string> environment;          // "NAME=value"
  std::string cwd;                               // empty: stay
  std::vector<std::pair<int, int>> descriptors;  // {ours, number in the child}; all others are closed
  std::vector<int> cpus;                         // empty: leave the affinity
  std::optional<std::uint32_t> umask;
  std::uint64_t open_files = 0;       // soft RLIMIT_NOFILE; 0: leave it
  int oom_score_add = 0;              // raises the chance that the kernel chooses it when memory runs out
  bool new_session = true;            // own session and process group: no terminal, no signals from it
  bool controlling_terminal = false;  // descriptor 0 is a terminal that becomes the new session's
  bool die_with_parent = false;       // SIGKILL when the thread that started it ends
  int lifeline = -1;                  // its end of a pipe: KILL for the group when the other end is closed
  std::string cgroup;                 // directory of a cgroup v2 to join before the program runs, or empty
  bool ignore_terminal = false;       // leave SIGINT and friends ignored (the agent)
};

// What a child reports if it could not become the program; read from Process::exec_report.
struct ExecFault {
  int error = 0;  // errno
  char step = 0;  // 'x' exec, 'd' directory, 'f' descriptors, 'a' affinity
};

class Process {
 public:
  Process() = default;
  Process(pid_t pid, Fd pidfd, Fd exec_report);

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }  // readable when it has ended; -1 on old kernels
  [[nodiscard]] bool running() const { return pid_ > 0 && !reaped_; }
  // The owner has called waitpid: the number may now belong to somebody else.
  void reaped() { reaped_ = true; }
  void signal(int number) const;
  void signal_group(int number) const;

  // Readable until the child runs its program (then end of file) or has failed to.
  [[nodiscard]] int exec_report() const { return exec_report_.get(); }
  // Reads the report: nothing yet, success (error 0) or the fault. Closes it unless there is nothing yet.
  std::optional<ExecFault> take_exec_report();

 private:
  pid_t pid_ = -1;
  Fd pidfd_;
  Fd exec_report_;
  bool reaped_ = false;
};

// Until when to wait for its end before waitpid() is asked: nothing wakes us where the kernel or a container's seccomp
// profile refuses a pidfd.
TimePoint next_look(const Process& process, TimePoint deadline);

// Returns as soon as the child exists; whether it could run the program comes through exec_report().
Result<Process> start_process(const ProcessSpec& spec);

// The soft limit of open files becomes the hard one: head and agents have several for each rank, and ssh gives 1024.
// Returns what it was, which ranks get back.
std::uint64_t raise_open_files();

// Both close-on-exec. {read end, write end}
Result<std::pair<Fd, Fd>> make_pipe();

}  // namespace distrun::launcher
