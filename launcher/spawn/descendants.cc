#include "launcher/spawn/descendants.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {
namespace {

std::optional<ProcessInfo> read_process(pid_t pid, const std::string& proc) {
  std::ifstream file(proc + "/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // "pid (name) state ppid ...". The name may contain any characters, so search for the last ')'.
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessInfo info{.pid = pid, .name = line.substr(open + 1, close - open - 1)};
  std::istringstream rest(line.substr(close + 1));
  rest >> info.state >> info.parent;
  return info;
}

}  // namespace

ProcessTable read_processes(const std::string& proc) {
  ProcessTable out;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(proc.c_str()), ::closedir);
  if (directory == nullptr) return out;
  while (const dirent* entry = ::readdir(directory.get())) {
    const auto pid = parse_number(entry->d_name, 1, 1 << 30);
    if (!pid) continue;
    if (auto info = read_process(*pid, proc)) out[*pid] = *std::move(info);
  }
  return out;
}

bool is_below(pid_t pid, pid_t ancestor, const ProcessTable& table, const std::vector<pid_t>& except) {
  pid_t at = pid;
  // The chain of parents is short. The bound protects against a loop in the snapshot, if a pid was reused while it was
  // read.
  for (int depth = 0; depth < 1000 && at > 1 && at != ancestor; ++depth) {
    if (std::find(except.begin(), except.end(), at) != except.end()) break;
    const auto found = table.find(at);
    at = found == table.end() ? 0 : found->second.parent;
  }
  return at == ancestor && pid != ancestor;
}

std::vector<ProcessInfo> descendants_of(pid_t ancestor, const ProcessTable& table, const std::vector<pid_t>& except) {
  std::vector<ProcessInfo> out;
  for (const auto& [pid, info] : table) {
    if (is_below(pid, ancestor, table, except)) out.push_back(info);
  }
  return out;
}

std::vector<ProcessInfo> descendants(const std::vector<pid_t>& except) {
  return descendants_of(::getpid(), read_processes(), except);
}

int signal_processes(const std::vector<ProcessInfo>& processes, int number) {
  int count = 0;
  for (const ProcessInfo& process : processes) {
    if (process.state == 'Z') continue;
    const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    // The pid may have been reused since the scan. A pidfd, with the same name and parent, excludes this, except for a
    // process with the same name and parent. That one is a descendant too.
    const auto now = read_process(process.pid, "/proc");
    if (!now || now->name != process.name || now->parent != process.parent) continue;
    const long result =
        pidfd.valid() ? ::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0) : ::kill(process.pid, number);
    if (result == 0) ++count;
  }
  return count;
}

int rank_of_process(pid_t pid, const std::string& proc) {
  std::ifstream file(proc + "/" + std::to_string(pid) + "/environ");
  std::string variable;
  while (std::getline(file, variable, '\0')) {
    constexpr std::string_view kName = "DISTRUN_RANK=";
    if (variable.starts_with(kName)) return parse_number(variable.substr(kName.size()), 0, 1 << 30).value_or(-1);
  }
  return -1;
}

std::string describe(const std::vector<ProcessInfo>& processes, const std::string& proc) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> words;
  for (const ProcessInfo& process : processes) {
    if (words.size() == kShown) {
      words.push_back("...");
      break;
    }
    const int rank = rank_of_process(process.pid, proc);
    words.push_back(printable(process.name) + " pid " + std::to_string(process.pid) +
                    (rank >= 0 ? " of rank " + std::to_string(rank) : ""));
  }
  return join(words, ", ");
}

bool may_not_signal(pid_t pid) { return ::kill(pid, 0) != 0 && errno == EPERM; }

std::string unkillable(const std::vector<ProcessInfo>& processes, const std::string& proc, bool (*denied)(pid_t)) {
  std::vector<ProcessInfo> kept;
  std::vector<ProcessInfo> foreign;
  for (const ProcessInfo& process : processes) {
    if (process.state != 'Z') (denied(process.pid) ? foreign : kept).push_back(process);
  }
  std::string out;
  if (!foreign.empty()) {
    out = "these processes still run, because they belong to another user. End them with sudo kill PID: " +
          describe(foreign, proc);
  }
  if (kept.empty() && !foreign.empty()) return out;
  return out + (out.empty() ? "" : "; ") +
         "these processes still run, because the kernel cannot kill them now. Look for a file server that does not "
         "answer, a driver, or a frozen cgroup: " +
         describe(kept, proc);
}

void kill_descendants(const std::vector<pid_t>& except) {
  constexpr double kLimitSeconds = 5;
  // The interval at which newly forked processes are looked for.
  constexpr double kLookSeconds = 0.05;
  const TimePoint deadline = deadline_after(kLimitSeconds);
  Poller poller;
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    const std::vector<ProcessInfo> rest = descendants(except);
    if (rest.empty() || Clock::now() >= deadline) return;
    signal_processes(rest, SIGKILL);
    poller.clear();
    if (!poller.wait(deadline_after(kLookSeconds)).ok()) return;
  }
}

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> current_children() {
  std::vector<pid_t> out;
  for (const ProcessInfo& info : descendants()) {
    if (info.parent == ::getpid()) out.push_back(info.pid);
  }
  return out;
}

}  // namespace distrun::launcher
