// The processes below this one, found by walking /proc: only real descendants, never a match by name.
// Both the head and the agents are subreapers, so what a rank started stays below even after setsid or a double fork.
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

// Of one process, in a table. Pure.
std::vector<ProcessInfo> descendants_of(pid_t ancestor, const ProcessTable& table,
                                        const std::vector<pid_t>& except = {});

// `ancestor` itself is not below it. Pure.
bool is_below(pid_t pid, pid_t ancestor, const ProcessTable& table, const std::vector<pid_t>& except = {});

// Of this process. `except` and what is below them are left out: children that existed before we became their parent's
// heir.
std::vector<ProcessInfo> descendants(const std::vector<pid_t>& except = {});

// Signals each process through a pidfd that is checked to be still a descendant. Returns how many were signalled.
int signal_processes(const std::vector<ProcessInfo>& processes, int number);

// The rank that a process belongs to, by the DISTRUN_RANK it was started with; -1 if unknown.
int rank_of_process(pid_t pid, const std::string& proc = "/proc");

// "python pid 42 of rank 3, sh pid 43", of many the first eight.
std::string describe(const std::vector<ProcessInfo>& processes, const std::string& proc = "/proc");
// Another user's: what was started by sudo or is setuid.
bool may_not_signal(pid_t pid);
// What is told of processes that KILL has not ended; those that have ended and are only to be reaped do not count.
std::string unkillable(const std::vector<ProcessInfo>& processes, const std::string& proc = "/proc",
                       bool (*denied)(pid_t) = may_not_signal);

// Kills the descendants until none is left, or a few seconds are over, and reaps this process's children.
void kill_descendants(const std::vector<pid_t>& except);

void become_subreaper();
std::vector<pid_t> current_children();

}  // namespace distrun::launcher
