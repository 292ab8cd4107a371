// Whether the other side of a connection still lives: each side says so every second, and silence is death. For
// connections over a network, where the end of file of a vanished host may take hours. Pure.
#pragma once

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class Heartbeat {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);
  // A side that has not looked for so long was stopped itself, or suspended with its host, and heard nothing for that.
  static constexpr Duration kSuspended = 2 * kInterval;

  Heartbeat() = default;  // neither speaks nor listens
  Heartbeat(Duration limit, TimePoint now) : limit_(limit), heard_(now), spoke_(now), looked_(now) {}

  [[nodiscard]] bool on() const { return limit_ > Duration::zero(); }
  void heard(TimePoint now) { heard_ = now; }
  // True if a sign of life is due; it counts as given.
  bool speak(TimePoint now) {
    if (!on() || now - spoke_ < kInterval) return false;
    spoke_ = now;
    return true;
  }
  // To be asked in every round of a loop that wakes by deadline(); the time for which it did not run does not count.
  [[nodiscard]] bool silent(TimePoint now) {
    const Duration unseen = now - std::max(heard_, std::exchange(looked_, now));
    if (unseen > kSuspended) heard_ = std::min(heard_ + unseen, now);
    return on() && now - heard_ >= limit_;
  }
  // When speak() or silent() change by themselves; max() when off.
  [[nodiscard]] TimePoint deadline() const {
    return on() ? std::min(spoke_ + kInterval, heard_ + limit_) : TimePoint::max();
  }

 private:
  Duration limit_ = Duration::zero();
  TimePoint heard_;
  TimePoint spoke_;
  TimePoint looked_;
};

}  // namespace distrun::launcher
