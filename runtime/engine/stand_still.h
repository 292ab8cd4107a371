// A time during which this rank's loop did not run at all: the process was stopped, or suspended with its job. What it
// waits for could not come meanwhile, so that time counts for no limit. The absence of others does count.
#pragma once

#include <algorithm>

#include "runtime/base/clock.h"

namespace distrun::engine {

struct StandStill {
  TimePoint from;
  TimePoint until;

  // When something began that has lasted since `since`, had the loop not stood still.
  [[nodiscard]] TimePoint moved(TimePoint since) const {
    return std::max(since, std::min(since + (until - from), until));
  }
};

}  // namespace distrun::engine
