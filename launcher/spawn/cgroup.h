// A cgroup v2 for the ranks of one host, if the system lets this process create one. cgroup.kill ends all its processes
// at once, even daemonised ones. It is optional: without it, the agent kills the descendants that it finds in /proc.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

// The name that the agent with this pid gives to its ranks' cgroup.
std::string rank_cgroup_name(const std::string& job_id, int pid);

class RankCgroup {
 public:
  RankCgroup() = default;
  // Creates it below the cgroup of this process, under `root` ("/" except in tests). Empty if that is not possible.
  static RankCgroup create(const std::string& root, const std::string& name);
  RankCgroup(RankCgroup&& other) noexcept;
  RankCgroup& operator=(RankCgroup&& other) noexcept;
  ~RankCgroup();

  [[nodiscard]] const std::string& directory() const { return directory_; }  // empty: no cgroup
  void kill() const;

 private:
  std::string directory_;
  Fd lock_;  // on the directory: while it is held, no other process may remove the cgroup
};

// For agents that were killed before they could clean up: ends the processes in their ranks' cgroups and removes these
// cgroups. Looks below the cgroup of this process and below its siblings (other logins of the same user). Returns the
// processes.
std::vector<pid_t> end_abandoned_cgroups(const std::string& root);

// How often the kernel has killed a process of the memory cgroup of process `pid` because memory ran out. `pid` may
// have ended, but has not been reaped. -1: this is not known (always with cgroup v1), or the counter of our own cgroup
// has these kills too.
long oom_kills_of(const std::string& root, pid_t pid);

// How often the kernel has killed a process of our memory cgroup because memory ran out, and whether it did so
// recently. Without that limit, an old out-of-memory kill could be blamed for an unrelated KILL weeks later.
//
// With cgroup v1 this also watches the other memory cgroups of the machine: a process may move into one of its own, the
// kernel forgets its place when it ends, and a counter does not have the kills below its cgroup.
class OomKills {
 public:
  OomKills() = default;
  OomKills(const std::string& root, TimePoint now);  // "/" except in tests

  // -1 if the kernel does not report it.
  [[nodiscard]] long total() const { return total_; }
  // In each round of the loop, call watch() and afterwards tick(). With cgroup v2, watch() wakes the loop on changes.
  void watch(Poller& poller);
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const { return quiet_until_; }  // when to call watch() again
  // True if the kernel killed a process so recently that it may be the one that has just ended. `ours`: true for the
  // processes of this job. A cgroup outside ours counts only while it has no process of others.
  bool of_late(TimePoint now, const std::function<bool(pid_t)>& ours);

  // The kernel counts the kill before it sends the signal. A process of hundreds of gigabytes takes long to free them.
  static constexpr Duration kOfLate = std::chrono::seconds(60);

 private:
  static constexpr Duration kLookAgain = std::chrono::milliseconds(100);
  // If a full cgroup changes all the time, its events wake the loop at most once in this time.
  static constexpr Duration kQuiet = std::chrono::seconds(1);

  [[nodiscard]] long read() const;
  void look(TimePoint now);
  // The v1 memory cgroups in which the kernel has killed a process since the last call.
  std::vector<std::string> others_that_rose();

  Fd file_;
  long total_ = -1;
  TimePoint looked_;
  std::optional<TimePoint> quiet_until_;
  std::optional<TimePoint> rose_;
  std::string own_;                     // with cgroup v1: the folder of our memory cgroup
  std::string top_;                     // the folder above all of them; empty without cgroup v1
  std::map<std::string, long> others_;  // kills in each of them but ours
};

}  // namespace distrun::launcher
