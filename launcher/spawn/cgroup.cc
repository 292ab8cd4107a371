#include "launcher/spawn/cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace distrun::launcher {
namespace {

constexpr char kNamePrefix[] = "distrun-ranks-";
// The time limit for KILL to end the processes of all abandoned cgroups together. Processes that remain are held by the
// kernel, and their cgroup stays.
constexpr double kEndSeconds = 1;
// More memory cgroups of v1 are not looked at, because a look must not take long.
constexpr std::size_t kMostCgroups = 4096;

struct Mount {
  std::string v2;      // mount point of the unified hierarchy
  std::string memory;  // mount point of the v1 memory controller
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

// The path after "<key>:" in /proc/PROCESS/cgroup. The key is "0:" for v2, else the controller's name.
std::string cgroup_of(const std::string& root, const std::string& process, const std::string& controller) {
  std::ifstream file(root + "proc/" + process + "/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controller) return line.substr(second + 1);
  }
  return {};
}

long counter(std::istream& file) {
  std::string key;
  long value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return -1;
}

std::string own_cgroup(const std::string& root, const std::string& controller) {
  return cgroup_of(root, "self", controller);
}

std::string with_root(const std::string& root, const std::string& path) { return root + path.substr(1); }

// The directory of this process's own cgroup v2; empty if it has none.
std::string own_directory(const std::string& root) {
  const Mount mount = find_mounts(root);
  const std::string own = own_cgroup(root, "");
  if (mount.v2.empty() || own.empty()) return {};
  return with_root(root, mount.v2) + (own == "/" ? "" : own);
}

// Invalid if another process holds the lock. The kernel releases the lock when its holder dies, in any container.
Fd lock_directory(const std::string& path) {
  Fd out(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (out.valid() && ::flock(out.get(), LOCK_EX | LOCK_NB) != 0) out.reset();
  return out;
}

void await_empty(const std::string& cgroup, TimePoint deadline) {
  const Fd events(::open((cgroup + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC));
  char text[256] = {};
  while (events.valid() && ::pread(events.get(), text, sizeof text - 1, 0) > 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (std::string(text).find("populated 0") != std::string::npos || left <= 0) return;
    pollfd change{.fd = events.get(), .events = POLLPRI, .revents = 0};
    ::poll(&change, 1, static_cast<int>(left));
  }
}

std::vector<std::string> folders_in(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->is_directory(gone)) out.push_back(it->path().string());
  }
  return out;
}

std::vector<pid_t> processes_in(const std::string& cgroup) {
  std::vector<pid_t> out;
  std::ifstream file(cgroup + "/cgroup.procs");
  for (pid_t pid = 0; file >> pid;) {
    if (pid > 0) out.push_back(pid);  // processes of other containers are listed as 0
  }
  return out;
}

// Processes of other containers, which are listed as 0, are not ours.
bool has_only(const std::string& cgroup, const std::function<bool(pid_t)>& ours) {
  std::ifstream file(cgroup + "/cgroup.procs");
  for (pid_t pid = 0; file >> pid;) {
    if (pid <= 0 || !ours(pid)) return false;
  }
  return true;
}

}  // namespace

std::string rank_cgroup_name(const std::string& job_id, int pid) {
  return kNamePrefix + job_id + "-" + std::to_string(pid);
}

RankCgroup RankCgroup::create(const std::string& root, const std::string& name) {
  RankCgroup out;
  const std::string own = own_directory(root);
  if (own.empty()) return out;
  const std::string directory = own + "/" + name;
  if (::mkdir(directory.c_str(), 0700) != 0) return out;
  Fd lock = lock_directory(directory);
  // Between the two lines above, another agent has locked this cgroup, because it looks abandoned. That agent will
  // remove it.
  if (!lock.valid()) return out;
  // Old kernels have no cgroup.kill. Joining may be forbidden although creating the directory was not.
  if (::access((directory + "/cgroup.kill").c_str(), W_OK) != 0 ||
      ::access((directory + "/cgroup.procs").c_str(), W_OK) != 0) {
    ::rmdir(directory.c_str());
    return out;
  }
  out.directory_ = directory;
  out.lock_ = std::move(lock);
  return out;
}

std::vector<pid_t> end_abandoned_cgroups(const std::string& root) {
  const std::string own = own_directory(root);
  if (own.empty()) return {};
  std::vector<std::string> places = {own};
  if (own_cgroup(root, "") != "/") places = folders_in(std::filesystem::path(own).parent_path().string());
  std::vector<pid_t> out;
  std::vector<std::pair<std::string, Fd>> ours;
  for (const std::string& place : places) {
    for (const std::string& cgroup : folders_in(place)) {
      if (!std::filesystem::path(cgroup).filename().string().starts_with(kNamePrefix)) continue;
      Fd lock = lock_directory(cgroup);
      if (!lock.valid()) continue;
      const std::vector<pid_t> processes = processes_in(cgroup);
      out.insert(out.end(), processes.begin(), processes.end());
      std::ofstream(cgroup + "/cgroup.kill") << "1";
      ours.emplace_back(cgroup, std::move(lock));
    }
  }
  // One deadline for all of them: cgroups that the kernel keeps would delay every later start. During the wait the head
  // gets no message from this host.
  const TimePoint deadline = deadline_after(kEndSeconds);
  for (const auto& [cgroup, lock] : ours) {
    await_empty(cgroup, deadline);
    ::rmdir(cgroup.c_str());
  }
  return out;
}

RankCgroup::RankCgroup(RankCgroup&& other) noexcept
    : directory_(std::exchange(other.directory_, {})), lock_(std::move(other.lock_)) {}

RankCgroup& RankCgroup::operator=(RankCgroup&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(lock_, other.lock_);
  return *this;
}

RankCgroup::~RankCgroup() {
  if (!directory_.empty()) ::rmdir(directory_.c_str());
}

void RankCgroup::kill() const {
  if (!directory_.empty()) std::ofstream(directory_ + "/cgroup.kill") << "1";
}

long oom_kills_of(const std::string& root, pid_t pid) {
  const auto count = [](const std::string& path) {
    std::ifstream file(path);
    return counter(file);
  };
  const Mount mount = find_mounts(root);
  // With cgroup v1, a process that has ended has lost its place.
  if (!mount.memory.empty()) return -1;
  const std::string process = std::to_string(pid);
  const std::string group = cgroup_of(root, process, "");
  if (mount.v2.empty() || group.empty()) return -1;
  // With cgroup v2, the counter of a cgroup has the kills below it too.
  const std::string own = own_cgroup(root, "");
  const std::string below = own.ends_with('/') ? own : own + "/";
  const bool counted = group == own || group.starts_with(below);
  if (counted && count(with_root(root, mount.v2) + own + "/memory.events") >= 0) return -1;
  return count(with_root(root, mount.v2) + group + "/memory.events");
}

OomKills::OomKills(const std::string& root, TimePoint now) : looked_(now) {
  const Mount mount = find_mounts(root);
  std::vector<std::string> files;
  if (!mount.memory.empty()) {
    top_ = with_root(root, mount.memory);
    own_ = top_ + own_cgroup(root, "memory");
    files.push_back(own_ + "/memory.oom_control");
    others_that_rose();
  }
  if (!mount.v2.empty()) files.push_back(with_root(root, mount.v2) + own_cgroup(root, "") + "/memory.events");
  for (const std::string& file : files) {
    file_.reset(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    total_ = read();
    if (total_ >= 0) return;
  }
  file_.reset();
}

long OomKills::read() const {
  char text[1024] = {};
  if (!file_.valid() || ::pread(file_.get(), text, sizeof text - 1, 0) <= 0) return -1;
  std::istringstream lines(text);
  return counter(lines);
}

void OomKills::look(TimePoint now) {
  looked_ = now;
  const long before = std::exchange(total_, read());
  if (before >= 0 && total_ > before) rose_ = now;
}

void OomKills::tick(TimePoint now) {
  if (file_.valid() && now - looked_ >= kLookAgain) look(now);
}

void OomKills::watch(Poller& poller) {
  if (!file_.valid() || (quiet_until_ && Clock::now() < *quiet_until_)) return;
  quiet_until_.reset();
  poller.watch(file_.get(), POLLPRI, [this](short) {
    const TimePoint now = Clock::now();
    look(now);
    quiet_until_ = now + kQuiet;
  });
}

std::vector<std::string> OomKills::others_that_rose() {
  std::vector<std::string> out;
  if (top_.empty()) return out;
  std::error_code error;
  using Folders = std::filesystem::recursive_directory_iterator;
  std::size_t seen = 0;
  for (Folders it(top_, std::filesystem::directory_options::skip_permission_denied, error), end;
       !error && it != end && seen < kMostCgroups; it.increment(error)) {
    std::error_code gone;
    if (!it->is_directory(gone)) continue;
    ++seen;
    const std::string cgroup = it->path().string();
    std::ifstream file(cgroup + "/memory.oom_control");
    const long kills = counter(file);
    long& before = others_[cgroup];
    if (kills > before && cgroup != own_) out.push_back(cgroup);
    before = std::max(kills, 0L);
  }
  return out;
}

bool OomKills::of_late(TimePoint now, const std::function<bool(pid_t)>& ours) {
  look(now);
  for (const std::string& cgroup : others_that_rose()) {
    if (cgroup.starts_with(own_ + "/") || has_only(cgroup, ours)) rose_ = now;
  }
  return rose_ && now - *rose_ <= kOfLate;
}

}  // namespace distrun::launcher
