// Tells when an operation between hosts takes so long that the agents should check whether the hosts still reach each
// other. A library's own connections may hang for minutes on a broken path. The interval between reports grows. Pure:
// no clock, no I/O.
#pragma once

#include <optional>

#include "runtime/base/clock.h"
#include "runtime/engine/monitoring/watchdog.h"

namespace distrun::engine {

class LongWait {
 public:
  // Zero: never.
  explicit LongWait(Duration after) : after_(after) {}

  // The earliest time at which due() may return true.
  [[nodiscard]] std::optional<TimePoint> next(const std::optional<OldestWork>& work) const {
    if (after_ == Duration::zero() || !work) return std::nullopt;
    return work->since == since_ ? next_ : work->since + after_;
  }
  // True: report it now.
  bool due(const std::optional<OldestWork>& work, TimePoint now) {
    const auto when = next(work);
    if (!when || now < *when) return false;
    since_ = work->since;
    next_ = now + (now - *since_);
    return true;
  }

 private:
  const Duration after_;
  std::optional<TimePoint> since_;  // when the operation in the last report started
  TimePoint next_;
};

}  // namespace distrun::engine
