// The time since the machine started, including the time for which it was suspended. A lease uses this clock, because
// time on the other machines continued. A loop that waits by another clock can poll BootTimer's descriptor.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/base/fd.h"

namespace distrun::launcher {

using BootTime = std::chrono::nanoseconds;

BootTime boot_time();

// A descriptor that becomes readable at a given time. If the kernel refuses a timer, it never does, and the waiting
// loop checks once a second.
class BootTimer {
 public:
  BootTimer();
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Cheap if the timer is already set to this time.
  void set(std::optional<BootTime> when);

 private:
  Fd fd_;
  std::optional<BootTime> when_;
};

}  // namespace distrun::launcher
