// --mpi: the processes above an agent, whose ends its head is to know of: this may be the only one who sees them.
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
  // `pid` must be alive. Nothing is watched where the kernel refuses a pidfd.
  void add(CarrierNews::Kind kind, pid_t pid) {
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
    any_ = true;
    if (pidfd.valid()) above_.push_back({.news = {.kind = kind, .name = name, .pid = pid}, .pidfd = std::move(pidfd)});
  }
  // MPI's launcher has started this agent.
  [[nodiscard]] bool any() const { return any_; }

  // Each end is told once.
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
