// How long an agent may let its ranks run: until host_timeout has passed since it sent the newest message that the head
// has answered. So ranks end on a host that the head cannot reach, whichever direction fails, before the head gives the
// host up. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "launcher/agent/lease/boot_time.h"
#include "launcher/protocol/messages.h"

namespace distrun::launcher {

class Lease {
 public:
  static constexpr BootTime kInterval = std::chrono::seconds(1);  // between signs of life

  Lease() = default;  // without an end, and without signs of life
  Lease(BootTime limit, BootTime now) : limit_(limit), end_(now + limit), spoke_(now), since_(now) {}

  [[nodiscard]] bool on() const { return limit_ > BootTime::zero(); }
  [[nodiscard]] BootTime limit() const { return limit_; }

  // The sign of life that is due. It counts as sent.
  std::optional<Beat> speak(BootTime now) {
    if (!on() || held_ || (now - spoke_ < kInterval && !ready_)) return std::nullopt;
    spoke_ = now;
    return Beat{.sent = now.count(), .ready = std::exchange(ready_, false)};
  }
  // The head has answered the sign of life that was sent then.
  void answered(std::int64_t sent) {
    const BootTime then(sent);
    if (then >= since_ && then <= spoke_) end_ = std::max(end_, then + limit_);
  }

  // The head is going to be stopped, and has stopped the ranks: nothing ends, and nothing is said. Too late for a lease
  // that is over.
  void hold(BootTime now) { held_ = on() && !over(now); }
  // The head goes on. Ranks stay stopped until it has answered a sign of life that was sent since then: an old word of
  // a head that has given this host up cannot let them run.
  void resume(BootTime now) {
    ready_ = on();
    if (!std::exchange(held_, false)) return;
    since_ = now;
    end_ = now + limit_;
  }

  // None: it has no end now.
  [[nodiscard]] std::optional<BootTime> end() const { return on() && !held_ ? std::optional(end_) : std::nullopt; }
  [[nodiscard]] bool over(BootTime now) const { return end() && now >= end_; }
  // When speak() or over() change by themselves.
  [[nodiscard]] std::optional<BootTime> deadline() const {
    if (!end()) return std::nullopt;
    return std::min(ready_ ? spoke_ : spoke_ + kInterval, end_);
  }

 private:
  BootTime limit_{};
  BootTime end_{};
  BootTime spoke_{};
  BootTime since_{};  // older signs of life do not count
  bool held_ = false;
  bool ready_ = false;  // the head has asked whether ranks may go on
};

}  // namespace distrun::launcher
