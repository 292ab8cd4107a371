// How long the head waits for an agent that should have ended its ranks, or itself. A stopped agent, or one on a
// hanging host, would otherwise keep the head for ever. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class EndDeadline {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(2);

  void alive(TimePoint now) { last_sign_ = now; }
  // Nothing is left on its host, or it is lost. Only the agent and its carrier have still to end.
  void done(TimePoint now) { done_ = now; }

  // When the agent is given up. `kill_by`: its deadline for killing all processes, if it has such an
  // order. An agent that finds processes which cannot be killed sends messages while it tries, which extend the time.
  [[nodiscard]] std::optional<TimePoint> end(std::optional<TimePoint> kill_by) const {
    if (done_) return *done_ + kLimit;
    if (!kill_by) return std::nullopt;
    return std::max(*kill_by, last_sign_) + kLimit;
  }

 private:
  TimePoint last_sign_ = TimePoint::min();
  std::optional<TimePoint> done_;
};

}  // namespace distrun::launcher
