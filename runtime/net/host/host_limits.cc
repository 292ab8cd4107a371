#include "runtime/net/host/host_limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

namespace distrun::net {
namespace {

// Returns the first number after `key` in "key value" lines, or the first number of the file if `key` is empty. Returns
// nothing for "max" and for a missing file.
std::optional<std::uint64_t> number_in(const std::string& path, const std::string& key = "") {
  std::ifstream file(path);
  std::string word;
  if (!key.empty()) {
    while (file >> word && word != key) file.ignore(1 << 10, '\n');
  }
  std::uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

struct ControlGroup {
  std::string path;  // of its directory
  bool unified = false;
};

// The control groups that limit `controller` for this process, innermost first. In a container without its own cgroup
// namespace the path is not visible; the mounted directory is then the group of the process.
std::vector<ControlGroup> groups_of(const std::string& sysroot, const std::string& controller) {
  std::ifstream file(sysroot + "/proc/self/cgroup");
  std::vector<ControlGroup> groups;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string mount = sysroot + "/sys/fs/cgroup" + (unified ? "" : "/" + controller);
    std::string path = line.substr(second + 1);
    while (path.size() > 1 && path.front() == '/') {
      groups.push_back({mount + path, unified});
      path.resize(path.rfind('/'));
    }
    groups.push_back({mount, unified});
  }
  return groups;
}

struct Room {
  std::uint64_t bytes = 0;
  std::string where;
};

std::optional<Room> room_in(const ControlGroup& group) {
  const std::string limit_file = group.path + (group.unified ? "/memory.max" : "/memory.limit_in_bytes");
  const auto limit = number_in(limit_file);
  const auto used = number_in(group.path + (group.unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used || *limit > (std::uint64_t{1} << 60)) return std::nullopt;
  // The kernel frees clean file pages before it refuses memory.
  const std::string stat = group.path + "/memory.stat";
  const std::string prefix = group.unified ? "" : "total_";
  const std::uint64_t cache =
      number_in(stat, prefix + "inactive_file").value_or(0) + number_in(stat, prefix + "active_file").value_or(0);
  const std::uint64_t taken = *used - std::min(*used, cache);
  return Room{*limit - std::min(*limit, taken), "the limit of " + std::to_string(*limit) + " bytes in " + limit_file};
}

void read_quota(const ControlGroup& group, CoreShare& share) {
  std::uint64_t quota = 0;
  std::uint64_t period = 0;
  if (group.unified) {
    std::ifstream file(group.path + "/cpu.max");
    if (!(file >> quota >> period)) return;  // "max 100000" is not a number
  } else {
    quota = number_in(group.path + "/cpu.cfs_quota_us").value_or(0);  // -1 if there is no quota
    period = number_in(group.path + "/cpu.cfs_period_us").value_or(0);
    if (quota > (std::uint64_t{1} << 60)) return;
  }
  if (quota == 0 || period == 0) return;
  const std::uint64_t millis = quota * 1000 / period;
  struct stat info {};
  if (::stat(group.path.c_str(), &info) != 0) return;
  if (share.quota_owner != 0 && share.quota_millis <= millis) return;
  share.quota_owner = (static_cast<std::uint64_t>(info.st_dev) << 40) ^ static_cast<std::uint64_t>(info.st_ino) ^ 1U;
  share.quota_millis = millis;
}

}  // namespace

Status check_memory(std::uint64_t bytes, const std::string& sysroot) {
  const std::string need = std::to_string(bytes) + " bytes of shared memory do not fit: ";
  rlimit file_size{};
  if (::getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur != RLIM_INFINITY && bytes > file_size.rlim_cur)
    return {Errc::kOutOfMemory, need + "the file size limit (ulimit -f) is " + std::to_string(file_size.rlim_cur) +
                                    " bytes, and it counts for shared memory too. Raise it"};
  for (const ControlGroup& group : groups_of(sysroot, "memory")) {
    const auto room = room_in(group);
    if (room && room->bytes < bytes)
      return {Errc::kOutOfMemory,
              need + "only " + std::to_string(room->bytes) + " bytes are left of " + room->where + ". Raise it"};
  }
  const auto available_kib = number_in(sysroot + "/proc/meminfo", "MemAvailable:");
  if (available_kib && *available_kib * 1024 < bytes)
    return {Errc::kOutOfMemory, need + "only " + std::to_string(*available_kib * 1024) +
                                    " bytes of memory are available (" + sysroot + "/proc/meminfo)"};
  return {};
}

CoreShare core_share(const std::string& sysroot) {
  CoreShare share;
  cpu_set_t* const set = CPU_ALLOC(CoreShare::kMaxCores);
  const std::size_t size = CPU_ALLOC_SIZE(CoreShare::kMaxCores);
  CPU_ZERO_S(size, set);
  if (set != nullptr && ::sched_getaffinity(0, size, set) == 0) {
    for (std::size_t core = 0; core < CoreShare::kMaxCores; ++core)
      if (CPU_ISSET_S(core, size, set)) share.cores.set(core);
  }
  CPU_FREE(set);
  for (const ControlGroup& group : groups_of(sysroot, "cpu")) read_quota(group, share);
  return share;
}

bool oversubscribed(std::span<const CoreShare> ranks) {
  std::bitset<CoreShare::kMaxCores> all;
  std::map<std::uint64_t, std::uint64_t> ranks_in_quota;
  for (const CoreShare& rank : ranks) {
    if (rank.cores.none()) return true;  // the cores are unknown
    all |= rank.cores;
    const auto confined = std::count_if(ranks.begin(), ranks.end(),
                                        [&](const CoreShare& other) { return (other.cores & ~rank.cores).none(); });
    if (static_cast<std::size_t>(confined) > rank.cores.count()) return true;
    if (rank.quota_owner != 0 && ++ranks_in_quota[rank.quota_owner] * 1000 > rank.quota_millis) return true;
  }
  return ranks.size() > all.count();
}

}  // namespace distrun::net
