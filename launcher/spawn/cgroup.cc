#include "launcher/spawn/cgroup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

namespace distrun::launcher {
namespace {

struct Mount {
  std::string v2;      // where the unified hierarchy is mounted
  std::string memory;  // where the v1 memory controller is
};

Mount find_mounts(const std::string& root) {
  Mount out;
  std::ifstream file(root + "proc/self/mounts");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string device;
    std::string where;
    std::string type;
    std::string options;
    words >> device >> where >> type >> options;
    if (type == "cgroup2" && out.v2.empty()) out.v2 = where;
    if (type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos) out.memory = where;
  }
  return out;
}

// The path behind "<key>:" in /proc/self/cgroup: key is "0:" for v2, else the controller's name.
std::string own_cgroup(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controller) return line.substr(second + 1);
  }
  return {};
}

long counter(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  long value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return -1;
}

std::string with_root(const std::string& root, const std::string& path) { return root + path.substr(1); }

std::string directory_of(const std::string& root, const std::string& name) {
  const Mount mount = find_mounts(root);
  const std::string own = own_cgroup(root, "");
  if (mount.v2.empty() || own.empty()) return {};
  return with_root(root, mount.v2) + (own == "/" ? "" : own) + "/" + name;
}

}  // namespace

std::string rank_cgroup_name(const std::string& job_id, int pid) {
  return "distrun-" + job_id + "-" + std::to_string(pid);
}

RankCgroup RankCgroup::create(const std::string& root, const std::string& name) {
  RankCgroup out;
  const std::string directory = directory_of(root, name);
  if (directory.empty()) return out;
  if (::mkdir(directory.c_str(), 0700) != 0) return out;
  // Old kernels have no cgroup.kill, and joining may be forbidden although making the directory was not.
  if (::access((directory + "/cgroup.kill").c_str(), W_OK) != 0 ||
      ::access((directory + "/cgroup.procs").c_str(), W_OK) != 0) {
    ::rmdir(directory.c_str());
    return out;
  }
  out.directory_ = directory;
  return out;
}

void RankCgroup::remove_left_behind(const std::string& root, const std::string& name) {
  const std::string directory = directory_of(root, name);
  if (!directory.empty()) ::rmdir(directory.c_str());
}

RankCgroup::RankCgroup(RankCgroup&& other) noexcept : directory_(std::exchange(other.directory_, {})) {}

RankCgroup& RankCgroup::operator=(RankCgroup&& other) noexcept {
  std::swap(directory_, other.directory_);
  return *this;
}

RankCgroup::~RankCgroup() {
  if (!directory_.empty()) ::rmdir(directory_.c_str());
}

void RankCgroup::kill() const {
  if (!directory_.empty()) std::ofstream(directory_ + "/cgroup.kill") << "1";
}

long oom_kills(const std::string& root) {
  const Mount mount = find_mounts(root);
  if (!mount.memory.empty()) {
    const long v1 = counter(with_root(root, mount.memory) + own_cgroup(root, "memory") + "/memory.oom_control");
    if (v1 >= 0) return v1;
  }
  if (mount.v2.empty()) return -1;
  return counter(with_root(root, mount.v2) + own_cgroup(root, "") + "/memory.events");
}

}  // namespace distrun::launcher
