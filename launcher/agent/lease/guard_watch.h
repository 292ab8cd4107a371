// Decides when a guard ends the processes below it although its agent has not, because the agent is stopped or hangs.
// Pure.
#pragma once

#include <optional>

#include "launcher/agent/lease/boot_time.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class GuardWatch {
 public:
  // An agent ends within this time after its head is gone, unless it is stopped or finds processes that cannot be
  // killed.
  static constexpr Duration kTimeLimit = std::chrono::seconds(2);
  // A stopped agent without a lease is killed after this time. It blocks nothing but itself, but if the network is gone
  // too, no other process may notice it.
  static constexpr Duration kStopped = std::chrono::seconds(15);
  // If the guard runs this much too late, it was stopped itself, as when a batch system suspends all processes. The
  // agent then gets its time again.
  static constexpr Duration kSuspended = std::chrono::seconds(2);
  // A running agent ends its ranks when its lease is over. The guard waits this much longer before it does so: both may
  // have been stopped, and may continue one after the other.
  static constexpr BootTime kTurn = std::chrono::milliseconds(200);
  // After the lease is over, a running agent still has messages to send. The guard kills it after this time.
  static constexpr BootTime kLastWords = std::chrono::seconds(2);
  static constexpr Duration kSweep = std::chrono::milliseconds(50);

  void head_gone(TimePoint now) {
    if (!gone_at_) gone_at_ = now;
  }
  void agent_stopped(TimePoint now) { stopped_at_ = now; }
  void agent_runs() { stopped_at_.reset(); }
  // True if the lease was over before the agent had ended.
  [[nodiscard]] bool lease_over() const { return over_since_.has_value(); }

  struct Actions {
    bool end_ranks = false;   // kill all processes below the agent; set in every round until the agent has ended
    bool kill_agent = false;  // set once
  };
  Actions next(TimePoint now, BootTime boot, std::optional<BootTime> lease_end);
  // When next() must be called although nothing happens. The end of the lease is not included: it is on another clock.
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
