// --mpi: watches the processes of MPI's launcher above an agent, and reports their ends to the head. The agent may be
// the only process that sees these ends.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/fd.h"

namespace distrun::launcher {

class CarrierWatch {
 public:
  // `pid` must be alive. If the kernel refuses a pidfd, the process is not watched.
  void add(CarrierNews::Kind kind, pid_t pid) {
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
    any_ = true;
    if (pidfd.valid()) above_.push_back({.news = {.kind = kind, .name = name, .pid = pid}, .pidfd = std::move(pidfd)});
  }
  // True if MPI's launcher has started this agent.
  [[nodiscard]] bool any() const { return any_; }
  // The message that this agent got a signal, with the daemon that most probably sent it.
  [[nodiscard]] CarrierNews news_of_daemon(CarrierNews::Kind kind) const {
    for (const Above& one : above_) {
      if (one.news.kind != CarrierNews::kDaemonEnded) continue;
      return {.kind = kind, .name = one.news.name, .pid = one.news.pid};
    }
    return {.kind = kind};
  }

  // Calls `on_end` once for each process that ends.
  void watch(Poller& poller, const std::function<void(const CarrierNews&)>& on_end) {
    for (Above& one : above_) {
      if (!one.pidfd.valid()) continue;
      poller.watch(one.pidfd.get(), POLLIN, [&one, on_end](short) {
        one.pidfd.reset();
        on_end(one.news);
      });
    }
  }

 private:
  struct Above {
    CarrierNews news;
    Fd pidfd;
  };
  std::vector<Above> above_;
  bool any_ = false;
};

}  // namespace distrun::launcher
