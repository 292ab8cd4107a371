// The processes below this one, found by walking /proc: only real descendants, never a match by name.
// Both the head and the agents are subreapers, so what a rank started stays below even after setsid or a double fork.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace distrun::launcher {

struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
  std::string name;
};

// `except` and what is below them are left out: children that existed before we became their parent's heir.
std::vector<ProcessInfo> descendants(const std::vector<pid_t>& except = {});

// Signals each process through a pidfd that is checked to be still a descendant. Returns how many were signalled.
int signal_processes(const std::vector<ProcessInfo>& processes, int number);

// The rank that a process belongs to, by the DISTRUN_RANK it was started with; -1 if unknown.
int rank_of_process(pid_t pid);

void become_subreaper();
std::vector<pid_t> current_children();

}  // namespace distrun::launcher
