// Tells when an operation between hosts has taken so long that the agents should see whether the hosts still reach each
// other: a library's own connections may hang for minutes on a path that is cut. Tells it ever less often. Pure.
#pragma once

#include <optional>

#include "runtime/base/clock.h"
#include "runtime/engine/monitoring/watchdog.h"

namespace distrun::engine {

class LongWait {
 public:
  // Zero: never.
  explicit LongWait(Duration after) : after_(after) {}

  // When due() may be true next.
  [[nodiscard]] std::optional<TimePoint> next(const std::optional<OldestWork>& work) const {
    if (after_ == Duration::zero() || !work) return std::nullopt;
    return work->since == since_ ? next_ : work->since + after_;
  }
  // True: it is to be told now.
  bool due(const std::optional<OldestWork>& work, TimePoint now) {
    const auto when = next(work);
    if (!when || now < *when) return false;
    since_ = work->since;
    next_ = now + (now - *since_);
    return true;
  }

 private:
  const Duration after_;
  std::optional<TimePoint> since_;  // of the operation in the last report
  TimePoint next_;
};

}  // namespace distrun::engine
