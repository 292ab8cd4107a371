// The agent's end of the connection to its head: frames, and signs of life both ways.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/spawn/frames.h"
#include "launcher/spawn/heartbeat.h"
#include "launcher/spawn/poller.h"
#include "runtime/net/bytes/link_watches.h"

namespace distrun::launcher {

class HeadConnection {
 public:
  explicit HeadConnection(FramePipe pipe) : pipe_(std::move(pipe)) {}

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

  // Signs of life are given and expected from now on; the head is lost after `limit` without one. Zero: neither.
  // The same if a message of its has begun and is not whole after that.
  void start_heartbeat(Duration limit, TimePoint now) {
    heart_ = Heartbeat(limit, now);
    limit_ = limit;
  }
  // The head has said that it will be silent, until it says something again.
  void hold(bool silent) { held_ = silent; }
  // Gives a sign of life if one is due. True if the head has been silent for too long: it counts as gone.
  bool beat(TimePoint now);
  // When beat() has something to do.
  [[nodiscard]] std::optional<TimePoint> deadline() const;

  void watch(Poller& poller, const std::function<void()>& on_readable);
  // Nothing else is left to be done here. Returns when the head has taken everything: of a connection that we closed
  // with words of the head's unread, the kernel would drop that, so the head closes it.
  void drain(Poller& poller, const std::function<void()>& on_readable);

 private:
  FramePipe pipe_;
  Heartbeat heart_;
  Duration limit_ = Duration::zero();
  net::BegunRecord begun_;
  bool held_ = false;
};

}  // namespace distrun::launcher
