// Monotonic time. Pure code takes a TimePoint as an argument and never reads the clock itself.
#pragma once

#include <chrono>

namespace distrun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline TimePoint deadline_after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace distrun
