// When a guard ends what is below it though the agent has not: the agent is stopped, or hangs. Pure.
#pragma once

#include <optional>

#include "launcher/agent/lease/boot_time.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class GuardWatch {
 public:
  // An agent whose head is gone has ended by then, unless it is stopped or finds what cannot be killed.
  static constexpr Duration kPatience = std::chrono::seconds(2);
  // A stopped agent that has no lease holds nothing but itself, and nobody may know where the network has gone too.
  static constexpr Duration kStopped = std::chrono::seconds(15);
  // Who has not looked for so long was stopped itself, as a batch system's suspend does with all.
  static constexpr Duration kStoodStill = std::chrono::seconds(2);
  // An agent that runs ends its ranks by itself when its lease is over. One that does not has as long again: both may
  // have been stopped and go on one after the other.
  static constexpr BootTime kTurn = std::chrono::milliseconds(200);
  // An agent that runs has something to say then.
  static constexpr BootTime kLastWords = std::chrono::seconds(2);
  static constexpr Duration kSweep = std::chrono::milliseconds(50);

  void head_gone(TimePoint now) {
    if (!gone_at_) gone_at_ = now;
  }
  void agent_stopped(TimePoint now) { stopped_at_ = now; }
  void agent_runs() { stopped_at_.reset(); }
  // The lease was over before the agent had ended.
  [[nodiscard]] bool lease_over() const { return over_since_.has_value(); }

  struct Actions {
    bool end_ranks = false;   // all that is below the agent; comes again until the agent has ended
    bool kill_agent = false;  // once
  };
  Actions next(TimePoint now, BootTime boot, std::optional<BootTime> lease_end);
  // When next() is to be called though nothing happens; the end of the lease is another clock's.
  [[nodiscard]] std::optional<TimePoint> deadline() const { return wake_; }

 private:
  std::optional<TimePoint> gone_at_;
  std::optional<TimePoint> stopped_at_;
  std::optional<TimePoint> kill_at_;
  std::optional<TimePoint> wake_;
  bool killed_ = false;
  std::optional<BootTime> over_since_;
};

}  // namespace distrun::launcher
