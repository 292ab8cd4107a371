// A cgroup v2 of our own for the ranks of one host, where the system lets us make one: cgroup.kill ends everything in
// it at once, however it daemonised. An extra: without it the sweep over descendants does the work.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"
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

// How often the kernel has killed a process of our memory cgroup for lack of memory, and whether it was of late: weeks
// may lie between the end of a process that nobody misses and a KILL from somebody else.
class OomKills {
 public:
  OomKills() = default;
  OomKills(const std::string& root, TimePoint now);  // "/" but for tests

  // -1 if the kernel does not tell.
  [[nodiscard]] long total() const { return total_; }
  // In each round of the loop: watch(), by which cgroup v2 wakes it when there is something new, and afterwards tick().
  void watch(Poller& poller);
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const { return quiet_until_; }  // when to watch() again
  // True if it killed one so shortly before now that this may be the one that has just ended.
  bool of_late(TimePoint now);

  // It is counted before it gets the signal, and a process of hundreds of gigabytes takes long to give them back.
  static constexpr Duration kOfLate = std::chrono::seconds(60);

 private:
  static constexpr Duration kLookAgain = std::chrono::milliseconds(100);
  // Where a full cgroup has news all the time, these wake us no more often.
  static constexpr Duration kQuiet = std::chrono::seconds(1);

  [[nodiscard]] long read() const;
  void look(TimePoint now);

  Fd file_;
  long total_ = -1;
  TimePoint looked_;
  std::optional<TimePoint> quiet_until_;
  std::optional<TimePoint> rose_;
};

}  // namespace distrun::launcher
