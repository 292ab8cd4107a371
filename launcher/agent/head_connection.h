// The agent's end of the connection to its head: frames, signs of life, and the lease that their answers extend.
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
  // `lease_end`: what the guard of this process reads.
  explicit HeadConnection(FramePipe pipe, LeaseEnd lease_end = {})
      : pipe_(std::move(pipe)), lease_end_(std::move(lease_end)) {}

  [[nodiscard]] bool closed() const { return pipe_.closed(); }
  // The head is taken to be gone.
  void abandon() { pipe_.abandon(); }

  template <class Message>
  void send(FromAgent type, const Message& message) {
    send_bytes(type, encode(message));
  }
  void send_bytes(FromAgent type, std::span<const std::byte> payload) {
    pipe_.send(static_cast<std::uint8_t>(type), payload);
  }
  // For people.
  void note(const std::string& text);
  std::vector<Frame> receive();

  // Signs of life are given from now on, and ranks may run for `limit` after one that is answered. Zero: neither.
  void start_lease(BootTime limit, BootTime now);
  void on(const Alive& word, BootTime now);
  [[nodiscard]] const Lease& lease() const { return lease_; }
  // Gives a sign of life if one is due. True once: the lease is over. What has been said until shortly after that is
  // still sent.
  bool beat(BootTime now);
  // When beat() has something to do.
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  void watch(Poller& poller, const std::function<void()>& on_readable);
  // Nothing else is left to be done here. Returns when the head has taken everything: of a connection that we closed
  // with words of the head's unread, the kernel would drop that, so the head closes it.
  void drain(Poller& poller, const std::function<void()>& on_readable);

 private:
  static constexpr BootTime kLastWords = std::chrono::seconds(1);
  void show_end();

  FramePipe pipe_;
  Lease lease_;
  LeaseEnd lease_end_;
  BootTimer timer_;               // ends a wait that began before the machine was suspended
  std::optional<BootTime> over_;  // since then it is known that the lease is over
};

}  // namespace distrun::launcher
