#include "launcher/agent/head_connection.h"

#include "runtime/net/bytes/wire.h"

namespace distrun::launcher {

void HeadConnection::note(const std::string& text) { send_bytes(FromAgent::kNote, net::as_bytes(text)); }

std::vector<Frame> HeadConnection::receive() { return pipe_.receive(); }

void HeadConnection::start_lease(BootTime limit, BootTime now) {
  lease_ = Lease(limit, now);
  if (limit > BootTime::zero()) pipe_.outlast(std::chrono::duration<double>(limit).count());
  show_end();
}

void HeadConnection::on(const Alive& word, BootTime now) {
  switch (word.what) {
    case Alive::What::kAnswer:
      lease_.answered(word.sent);
      break;
    case Alive::What::kHold:
      lease_.hold(now);
      break;
    case Alive::What::kResume:
      lease_.resume(now);
  }
  show_end();
}

bool HeadConnection::send_heartbeat(BootTime now) {
  if (pipe_.closed()) return false;
  if (lease_.over(now)) {
    if (over_ && now >= *over_ + kLastWords) pipe_.abandon();
    if (over_) return false;
    over_ = now;  // perhaps much later, if this process was stopped
    return true;
  }
  if (const auto sign = lease_.send_sign(now)) send(FromAgent::kAlive, *sign);
  return false;
}

// Tells the end of the lease to the guard and to this process's own timer.
void HeadConnection::show_end() {
  lease_end_.set(lease_.end());
  timer_.set(lease_.end());
}

std::optional<TimePoint> HeadConnection::deadline() const {
  const auto next = over_ ? std::optional(*over_ + kLastWords) : lease_.deadline();
  if (!next || pipe_.closed()) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Duration>(*next - boot_time());
}

void HeadConnection::watch(Poller& poller, const std::function<void()>& on_readable) {
  if (pipe_.closed()) return;
  poller.watch(pipe_.in(), POLLIN, [on_readable](short) { on_readable(); });
  if (pipe_.wants_write()) poller.watch(pipe_.out(), POLLOUT, [this](short) { pipe_.flush(); });
  if (!over_ && lease_.end()) poller.watch(timer_.fd(), POLLIN, [](short) {});
}

void HeadConnection::drain(Poller& poller, const std::function<void()>& on_readable) {
  while (!pipe_.closed() && (pipe_.wants_write() || pipe_.is_connection())) {
    poller.clear();
    if (pipe_.is_connection()) poller.watch(pipe_.in(), POLLIN, [&on_readable](short) { on_readable(); });
    if (pipe_.wants_write()) poller.watch(pipe_.out(), POLLOUT, [this](short) { pipe_.flush(); });
    if (!poller.wait(deadline()).ok()) return;
    send_heartbeat(boot_time());
  }
}

}  // namespace distrun::launcher
