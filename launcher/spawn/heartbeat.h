// Whether the other side of a connection still lives: each side says so every second, and silence is death. For
// connections over a network, where the end of file of a vanished host may take hours. Pure.
#pragma once

#include <algorithm>

#include "runtime/base/clock.h"

namespace distrun::launcher {

// Agents of other hosts end their ranks when nothing has come from the head for so long; so do their guards when the
// agent is stopped for so long, and cannot.
inline constexpr std::chrono::duration<double> kLease{15.0};

class Heartbeat {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);

  Heartbeat() = default;  // neither speaks nor listens
  Heartbeat(Duration limit, TimePoint now) : limit_(limit), heard_(now), spoke_(now) {}

  [[nodiscard]] bool on() const { return limit_ > Duration::zero(); }
  void heard(TimePoint now) { heard_ = now; }
  // True if a sign of life is due; it counts as given.
  bool speak(TimePoint now) {
    if (!on() || now - spoke_ < kInterval) return false;
    spoke_ = now;
    return true;
  }
  [[nodiscard]] bool silent(TimePoint now) const { return on() && now - heard_ >= limit_; }
  // When speak() or silent() change by themselves; max() when off.
  [[nodiscard]] TimePoint deadline() const {
    return on() ? std::min(spoke_ + kInterval, heard_ + limit_) : TimePoint::max();
  }

 private:
  Duration limit_ = Duration::zero();
  TimePoint heard_;
  TimePoint spoke_;
};

}  // namespace distrun::launcher
