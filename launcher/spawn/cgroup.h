// A cgroup v2 of our own for the ranks of one host, where the system lets us make one: cgroup.kill ends everything in
// it at once, however it daemonised. An extra: without it the sweep over descendants does the work.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/base/fd.h"

namespace distrun::launcher {

// The name that the agent `pid` gives to its ranks' cgroup.
std::string rank_cgroup_name(const std::string& job_id, int pid);

class RankCgroup {
 public:
  RankCgroup() = default;
  // Below the cgroup this process is in, under `root` ("/" but for tests). Empty if that is not possible.
  static RankCgroup create(const std::string& root, const std::string& name);
  RankCgroup(RankCgroup&& other) noexcept;
  RankCgroup& operator=(RankCgroup&& other) noexcept;
  ~RankCgroup();

  [[nodiscard]] const std::string& directory() const { return directory_; }  // empty: there is none
  void kill() const;

 private:
  std::string directory_;
  Fd lock_;  // on the directory: as long as it is held, this is nobody else's to remove
};

// Ends what is in the cgroups of agents that were killed before they could, and removes those cgroups: the ones below
// the cgroup that this process is in, or below one beside it (another login of the same user). Returns the processes.
std::vector<pid_t> end_abandoned_cgroups(const std::string& root);

// How often the kernel has killed a process of our memory cgroup for lack of memory; -1 if it does not tell.
long oom_kills(const std::string& root);

}  // namespace distrun::launcher
