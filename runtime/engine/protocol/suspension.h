// A time during which this rank's loop did not run, because the process was stopped, or suspended with its job. Nothing
// could arrive in that time, so no time limit includes it. Time limits do include the time for which other ranks were
// stopped.
#pragma once

#include <algorithm>

#include "runtime/base/clock.h"

namespace distrun::engine {

struct Suspension {
  TimePoint from;
  TimePoint until;

  // Returns `since`, moved later by the part of the suspension that came after it.
  [[nodiscard]] TimePoint moved(TimePoint since) const {
    return std::max(since, std::min(since + (until - from), until));
  }
};

}  // namespace distrun::engine
