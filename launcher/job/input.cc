#include "launcher/job/input.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace distrun::launcher {

void Input::watch(Poller& poller, const OnBytes& on_bytes) {
  if (readers_.empty() || !busy_.empty() || paused_ || ended_) return;
  poller.watch(0, POLLIN, [this, on_bytes](short) { read(on_bytes); });
}

void Input::read(const OnBytes& on_bytes) {
  std::vector<std::byte> bytes(32 * 1024);
  const ssize_t n = ::read(0, bytes.data(), bytes.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // With SIGTTIN ignored the kernel says EIO to a background process that reads its terminal.
  if (n < 0 && errno == EIO && ::isatty(0) != 0) {
    pause(Clock::now());
    return;
  }
  busy_ = readers_;
  ended_ = n <= 0;
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  on_bytes(readers_, std::move(bytes));
}

void Input::taken(std::size_t host, bool more) {
  busy_.erase(host);
  if (!more) readers_.erase(host);
}

std::optional<TimePoint> Input::deadline() const { return readers_.empty() ? std::nullopt : paused_; }

bool Input::look(TimePoint now) {
  if (!paused_ || now < *paused_) return false;
  const bool ours = ::tcgetpgrp(0) == ::getpgrp();
  if (ours) {
    resume();
  } else {
    pause(now);
  }
  return ours;
}

void Input::pause(TimePoint now) {
  paused_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace distrun::launcher
