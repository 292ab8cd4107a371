// A time during which this rank's loop did not run: the process was stopped, or suspended with its job. Nothing could
// arrive in that time, so it counts for no limit. The absence of other ranks does count.
#pragma once

#include <algorithm>

#include "runtime/base/clock.h"

namespace distrun::engine {

struct Suspension {
  TimePoint from;
  TimePoint until;

  // `since`, moved later by the part of the suspension that came after it.
  [[nodiscard]] TimePoint moved(TimePoint since) const {
    return std::max(since, std::min(since + (until - from), until));
  }
};

}  // namespace distrun::engine
