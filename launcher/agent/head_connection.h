// The agent's end of the connection to its head. It sends and receives frames and sends signs of life. The head's
// answers to these extend the lease.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/agent/lease/lease.h"
#include "launcher/agent/lease/lease_end.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/frames.h"
#include "launcher/spawn/poller.h"

namespace distrun::launcher {

class HeadConnection {
 public:
  // The guard of this process reads `lease_end`.
  explicit HeadConnection(FramePipe pipe, LeaseEnd lease_end = {})
      : pipe_(std::move(pipe)), lease_end_(std::move(lease_end)) {}

  [[nodiscard]] bool closed() const { return pipe_.closed(); }
  // Treats the head as gone.
  void abandon() { pipe_.abandon(); }

  template <class Message>
  void send(FromAgent type, const Message& message) {
    send_bytes(type, encode(message));
  }
  void send_bytes(FromAgent type, std::span<const std::byte> payload) {
    pipe_.send(static_cast<std::uint8_t>(type), payload);
  }
  // Sends a message for the user.
  void note(const std::string& text);
  std::vector<Frame> receive();

  // From now on this side sends signs of life. Ranks may run for `limit` after a sign of life that the head has
  // answered. Zero: no signs of life and no lease.
  void start_lease(BootTime limit, BootTime now);
  void on(const Alive& word, BootTime now);
  [[nodiscard]] const Lease& lease() const { return lease_; }
  // Sends a sign of life if one is due. Returns true once, when the lease is over. Messages queued until one second
  // after that (kLastWords) are still sent.
  bool send_heartbeat(BootTime now);
  // When send_heartbeat() must be called.
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  void watch(Poller& poller, const std::function<void()>& on_readable);
  // The agent calls this as its last step. Returns when the head has read everything. The head closes a connection
  // first: if this side closed it while it holds unread messages of the head, the kernel would discard the last
  // messages to the head.
  void drain(Poller& poller, const std::function<void()>& on_readable);

 private:
  static constexpr BootTime kLastWords = std::chrono::seconds(1);
  void show_end();

  FramePipe pipe_;
  Lease lease_;
  LeaseEnd lease_end_;
  BootTimer timer_;               // wakes the loop at the end of the lease, even after the machine was suspended
  std::optional<BootTime> over_;  // when this process noticed that the lease is over
};

}  // namespace distrun::launcher
