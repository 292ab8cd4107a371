// How long an agent may let its ranks run: until host_timeout has passed since it sent the newest message that the head
// has answered. So the ranks on an unreachable host end before the head gives the host up, whichever direction of the
// connection fails. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "launcher/agent/lease/boot_time.h"
#include "launcher/protocol/messages.h"

namespace distrun::launcher {

class Lease {
 public:
  static constexpr BootTime kInterval = std::chrono::seconds(1);  // between signs of life

  Lease() = default;  // no lease, and no signs of life
  Lease(BootTime limit, BootTime now) : limit_(limit), end_(now + limit), last_sent_(now), since_(now) {}

  [[nodiscard]] bool on() const { return limit_ > BootTime::zero(); }
  [[nodiscard]] BootTime limit() const { return limit_; }

  // Returns the sign of life that is due, if any. It is then treated as sent.
  std::optional<Heartbeat> send_sign(BootTime now) {
    if (!on() || held_ || (now - last_sent_ < kInterval && !ready_)) return std::nullopt;
    last_sent_ = now;
    return Heartbeat{.sent = now.count(), .ready = std::exchange(ready_, false)};
  }
  // The head has answered the sign of life that was sent at this time.
  void answered(std::int64_t sent) {
    const BootTime then(sent);
    if (then >= since_ && then <= last_sent_) end_ = std::max(end_, then + limit_);
  }

  // The head is about to be stopped and has stopped the ranks. From now on the lease does not end, and no signs of life
  // are sent. Has no effect if the lease is already over.
  void hold(BootTime now) { held_ = on() && !over(now); }
  // The head continues. The ranks stay stopped until it answers a sign of life that was sent after this call. So an old
  // message of a head that has given this host up cannot continue them.
  void resume(BootTime now) {
    ready_ = on();
    if (!std::exchange(held_, false)) return;
    since_ = now;
    end_ = now + limit_;
  }

  // The end of the lease. None: it has no end at present.
  [[nodiscard]] std::optional<BootTime> end() const { return on() && !held_ ? std::optional(end_) : std::nullopt; }
  [[nodiscard]] bool over(BootTime now) const { return end() && now >= end_; }
  // When the result of speak() or over() changes without another event.
  [[nodiscard]] std::optional<BootTime> deadline() const {
    if (!end()) return std::nullopt;
    return std::min(ready_ ? last_sent_ : last_sent_ + kInterval, end_);
  }

 private:
  BootTime limit_{};
  BootTime end_{};
  BootTime last_sent_{};
  BootTime since_{};  // signs of life sent before this time are ignored
  bool held_ = false;
  bool ready_ = false;  // the next sign of life tells the head that ranks may continue
};

}  // namespace distrun::launcher
