// Monotonic time. Pure code takes a TimePoint as an argument and never reads the clock itself.
#pragma once

#include <chrono>

namespace distrun {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

inline TimePoint deadline_after(double seconds) { return Clock::now() + duration_of(seconds); }

}  // namespace distrun
