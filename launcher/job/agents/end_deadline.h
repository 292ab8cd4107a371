// How long the head waits for an agent that should have ended its ranks, or itself: one that is stopped, or whose host
// hangs, would otherwise keep the head for ever. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class EndDeadline {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(2);

  void heard(TimePoint now) { heard_ = now; }
  // Nothing is left on its host, or it is lost: whatever carries it has only to end.
  void done(TimePoint now) { done_ = now; }

  // When it is given up. `kill_by`: when it was to have killed what was left, if it was told so; an agent that finds
  // processes which cannot be killed says something while it tries.
  [[nodiscard]] std::optional<TimePoint> end(std::optional<TimePoint> kill_by) const {
    if (done_) return *done_ + kLimit;
    if (!kill_by) return std::nullopt;
    return std::max(*kill_by, heard_) + kLimit;
  }

 private:
  TimePoint heard_ = TimePoint::min();
  std::optional<TimePoint> done_;
};

}  // namespace distrun::launcher
