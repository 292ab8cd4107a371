// The processes below this one, found in /proc. Only real descendants are found, never processes that match by name.
// Head and agents are subreapers, so processes that a rank started stay below them even after setsid or a double fork.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace distrun::launcher {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
  std::string name;
};

using ProcessTable = std::map<pid_t, ProcessInfo>;
ProcessTable read_processes(const std::string& proc = "/proc");

// The descendants of one process in a table. Pure.
std::vector<ProcessInfo> descendants_of(pid_t ancestor, const ProcessTable& table,
                                        const std::vector<pid_t>& except = {});

// A process is not below itself. Pure.
bool is_below(pid_t pid, pid_t ancestor, const ProcessTable& table, const std::vector<pid_t>& except = {});

// The descendants of this process, without `except` and the processes below those: for instance children that existed
// before this process became a subreaper.
std::vector<ProcessInfo> descendants(const std::vector<pid_t>& except = {});

// Signals each process through a pidfd, after a check that it is still a descendant. Returns how many were signalled.
int signal_processes(const std::vector<ProcessInfo>& processes, int number);

// The rank of a process, from its DISTRUN_RANK variable; -1 if unknown.
int rank_of_process(pid_t pid, const std::string& proc = "/proc");

// "python pid 42 of rank 3, sh pid 43". Names at most the first eight.
std::string describe(const std::vector<ProcessInfo>& processes, const std::string& proc = "/proc");
// True for a process of another user, started by sudo or setuid.
bool may_not_signal(pid_t pid);
// The message about processes that KILL has not ended. Processes that have ended and were not reaped yet are left out.
std::string unkillable(const std::vector<ProcessInfo>& processes, const std::string& proc = "/proc",
                       bool (*denied)(pid_t) = may_not_signal);

// Kills the descendants until none is left or 5 s have passed, and reaps this process's children.
void kill_descendants(const std::vector<pid_t>& except);

void become_subreaper();
std::vector<pid_t> current_children();

}  // namespace distrun::launcher
