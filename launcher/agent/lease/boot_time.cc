#include "launcher/agent/lease/boot_time.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <ctime>

namespace distrun::launcher {

BootTime boot_time() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

BootTimer::BootTimer() : fd_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)) {}

void BootTimer::set(std::optional<BootTime> when) {
  if (when == when_ || !fd_.valid()) return;
  when_ = when;
  itimerspec setting{};
  if (when) {
    // Zero would turn the timer off.
    const BootTime at = std::max(*when, BootTime(1));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at);
    setting.it_value.tv_sec = seconds.count();
    setting.it_value.tv_nsec = (at - seconds).count();
  }
  ::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &setting, nullptr);
}

}  // namespace distrun::launcher
