// A cgroup v2 of our own for the ranks of one host, where the system lets us make one: cgroup.kill ends everything in
// it at once, however it daemonised. An extra: without it the sweep over descendants does the work.
#pragma once

#include <string>

namespace distrun::launcher {

// The name that the agent `pid` gives to its ranks' cgroup; its head finds it by the same name.
std::string rank_cgroup_name(const std::string& job_id, int pid);

class RankCgroup {
 public:
  RankCgroup() = default;
  // Below the cgroup this process is in, under `root` ("/" but for tests). Empty if that is not possible.
  static RankCgroup create(const std::string& root, const std::string& name);
  // Removes the empty one of an owner that was killed before it could.
  static void remove_left_behind(const std::string& root, const std::string& name);
  RankCgroup(RankCgroup&& other) noexcept;
  RankCgroup& operator=(RankCgroup&& other) noexcept;
  ~RankCgroup();

  [[nodiscard]] const std::string& directory() const { return directory_; }  // empty: there is none
  void kill() const;

 private:
  std::string directory_;
};

// How often the kernel has killed a process of our memory cgroup for lack of memory; -1 if it does not tell.
long oom_kills(const std::string& root);

}  // namespace distrun::launcher
