// A child process as a value: how to start one, and a handle that always means the process that was started.
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
  std::string cwd;                               // empty: unchanged
  std::vector<std::pair<int, int>> descriptors;  // {ours, number in the child}; all others are closed
  std::vector<int> cpus;                         // empty: unchanged affinity
  std::optional<std::uint32_t> umask;
  std::uint64_t open_files = 0;       // soft RLIMIT_NOFILE; 0: unchanged
  int oom_score_add = 0;              // raises the chance that the kernel kills it when memory runs out
  bool new_session = true;            // own session and process group: no terminal and no signals from it
  bool controlling_terminal = false;  // descriptor 0 is a terminal and becomes the controlling terminal
  bool die_with_parent = false;       // SIGKILL when the thread that started it ends
  int lifeline = -1;                  // its end of a pipe: KILL for the group when the other end closes
  std::string cgroup;                 // directory of a cgroup v2 to join before the program runs, or empty
  bool ignore_terminal = false;       // leave the terminal's signals and SIGPIPE ignored (the agent)
  bool ignore_quit = false;           // leave SIGQUIT ignored
};

// A child's report that it could not execute the program. Read from Process::exec_report.
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
  // Call it after waitpid: from then on the pid may belong to another process.
  void reaped() { reaped_ = true; }
  void signal(int number) const;
  void signal_group(int number) const;

  // Readable when the child has executed its program (end of file) or has failed to do so.
  [[nodiscard]] int exec_report() const { return exec_report_.get(); }
  // Reads the report: none yet, success (error 0) or the fault. Closes it unless it is still to come.
  std::optional<ExecFault> take_exec_report();

 private:
  pid_t pid_ = -1;
  Fd pidfd_;
  Fd exec_report_;
  bool reaped_ = false;
};

// The deadline for waiting for its end before waitpid() is called again. If the kernel or a container's seccomp profile
// refuses a pidfd, no event wakes the caller.
TimePoint next_look(const Process& process, TimePoint deadline);

// Returns as soon as the child exists. exec_report() tells whether it could execute the program.
Result<Process> start_process(const ProcessSpec& spec);

// Raises the soft limit of open files to the hard limit: head and agents have several files for each rank, and ssh
// gives 1024. Returns the previous limit, which ranks get back.
std::uint64_t raise_open_files();

// Both close-on-exec. {read end, write end}
Result<std::pair<Fd, Fd>> make_pipe();

}  // namespace distrun::launcher
