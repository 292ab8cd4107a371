#include "launcher/agent/head_connection.h"

#include "runtime/net/bytes/wire.h"

namespace distrun::launcher {

void HeadConnection::note(const std::string& text) { send_bytes(FromAgent::kNote, net::as_bytes(text)); }

std::vector<Frame> HeadConnection::receive() {
  heart_.heard(Clock::now());
  held_ = false;
  return pipe_.receive();
}

bool HeadConnection::beat(TimePoint now) {
  if (pipe_.closed() || held_) return false;
  if (heart_.speak(now)) send_bytes(FromAgent::kAlive, {});
  const bool unfinished = begun_.overdue(heart_.on() ? pipe_.begun() : 0, now, limit_);
  if (!heart_.silent(now) && !unfinished) return false;
  pipe_.abandon();
  return true;
}

std::optional<TimePoint> HeadConnection::deadline() const {
  const bool listens = heart_.on() && !pipe_.closed() && !held_;
  return listens ? std::optional(heart_.deadline()) : std::nullopt;
}

void HeadConnection::watch(Poller& poller, const std::function<void()>& on_readable) {
  if (pipe_.closed()) return;
  poller.watch(pipe_.in(), POLLIN, [on_readable](short) { on_readable(); });
  if (pipe_.wants_write()) poller.watch(pipe_.out(), POLLOUT, [this](short) { pipe_.flush(); });
}

void HeadConnection::drain(Poller& poller, const std::function<void()>& on_readable) {
  while (!pipe_.closed() && (pipe_.wants_write() || pipe_.is_connection())) {
    poller.clear();
    if (pipe_.is_connection()) poller.watch(pipe_.in(), POLLIN, [&on_readable](short) { on_readable(); });
    if (pipe_.wants_write()) poller.watch(pipe_.out(), POLLOUT, [this](short) { pipe_.flush(); });
    if (!poller.wait(deadline()).ok()) return;
    beat(poller.woke());
  }
}

}  // namespace distrun::launcher
