// Virtual time: in this program Clock::now() returns the scheduler's time, not the machine's.
#pragma once

#include "runtime/base/clock.h"

namespace distrun::sim {

inline constexpr TimePoint kStart{std::chrono::hours(1)};
void set_now(TimePoint now);

}  // namespace distrun::sim
