#include "launcher/job/input.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace distrun::launcher {

void Input::open(std::set<std::size_t> hosts) {
  readers_ = std::move(hosts);
  struct stat info {};
  if (readers_.empty() || ::fstat(0, &info) != 0) return;
  socket_ = S_ISSOCK(info.st_mode);
  if (!S_ISFIFO(info.st_mode) && ::isatty(0) == 0) return;
  own_.reset(::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

// Polls descriptor 0 itself. A new description of a FIFO never sees the end of writers that closed it before it was
// opened.
void Input::watch(Poller& poller, const OnBytes& on_bytes) {
  if (readers_.empty() || !busy_.empty() || paused_ || ended_) return;
  poller.watch(0, POLLIN, [this, on_bytes](short) { read(on_bytes); });
}

// Does not block: the input that the loop saw may have gone to another reader (`distrun ... | less`).
ssize_t Input::read_some(std::vector<std::byte>& bytes) const {
  if (socket_) return ::recv(0, bytes.data(), bytes.size(), MSG_DONTWAIT);
  return ::read(own_.valid() ? own_.get() : 0, bytes.data(), bytes.size());
}

void Input::read(const OnBytes& on_bytes) {
  std::vector<std::byte> bytes(32 * 1024);
  const ssize_t n = read_some(bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // With SIGTTIN ignored, the kernel returns EIO to a background process that reads its terminal.
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
