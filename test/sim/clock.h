// Virtual time: in this program Clock::now() is what the scheduler says, not the machine's clock.
#pragma once

#include "runtime/base/clock.h"

namespace distrun::sim {

inline constexpr TimePoint kStart{std::chrono::hours(1)};
void set_now(TimePoint now);

}  // namespace distrun::sim
