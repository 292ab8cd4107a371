// Time since the machine started, the time for which it was suspended included. A lease counts it: the others' time
// went on. For a loop that waits by another clock there is a descriptor.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/base/fd.h"

namespace distrun::launcher {

using BootTime = std::chrono::nanoseconds;

BootTime boot_time();

// Readable from a time on. Where the kernel refuses one it never is, and the waiting loop looks once a second.
class BootTimer {
 public:
  BootTimer();
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Costs nothing if it is set so already.
  void set(std::optional<BootTime> when);

 private:
  Fd fd_;
  std::optional<BootTime> when_;
};

}  // namespace distrun::launcher
