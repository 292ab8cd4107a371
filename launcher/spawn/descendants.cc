#include "launcher/spawn/descendants.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "launcher/plan/text.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {
namespace {

std::optional<ProcessInfo> read_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // "pid (name) state ppid ..."; the name may contain anything, so search for the last ')'.
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessInfo info{.pid = pid, .name = line.substr(open + 1, close - open - 1)};
  std::istringstream rest(line.substr(close + 1));
  rest >> info.state >> info.parent;
  return info;
}

std::map<pid_t, ProcessInfo> all_processes() {
  std::map<pid_t, ProcessInfo> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc"), ::closedir);
  if (directory == nullptr) return out;
  while (const dirent* entry = ::readdir(directory.get())) {
    const auto pid = parse_number(entry->d_name, 1, 1 << 30);
    if (!pid) continue;
    if (auto info = read_process(*pid)) out[*pid] = *std::move(info);
  }
  return out;
}

}  // namespace

std::vector<ProcessInfo> descendants(const std::vector<pid_t>& except) {
  const std::map<pid_t, ProcessInfo> all = all_processes();
  const pid_t self = ::getpid();
  std::vector<ProcessInfo> out;
  for (const auto& [pid, info] : all) {
    pid_t at = pid;
    // The chain of parents is short; the bound guards against a snapshot that is torn by reuse of a number.
    for (int depth = 0; depth < 1000 && at > 1 && at != self; ++depth) {
      if (std::find(except.begin(), except.end(), at) != except.end()) break;
      const auto found = all.find(at);
      at = found == all.end() ? 0 : found->second.parent;
    }
    if (at == self && pid != self) out.push_back(info);
  }
  return out;
}

int signal_processes(const std::vector<ProcessInfo>& processes, int number) {
  int count = 0;
  for (const ProcessInfo& process : processes) {
    if (process.state == 'Z') continue;
    const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    // The number could have been given to a stranger since the scan; a pidfd plus the same name and parent rules that
    // out but for a stranger of the same name below the same parent, which then is a descendant too.
    const auto now = read_process(process.pid);
    if (!now || now->name != process.name || now->parent != process.parent) continue;
    const long result =
        pidfd.valid() ? ::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0) : ::kill(process.pid, number);
    if (result == 0) ++count;
  }
  return count;
}

int rank_of_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  std::string variable;
  while (std::getline(file, variable, '\0')) {
    constexpr std::string_view kName = "DISTRUN_RANK=";
    if (variable.starts_with(kName)) return parse_number(variable.substr(kName.size()), 0, 1 << 30).value_or(-1);
  }
  return -1;
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
