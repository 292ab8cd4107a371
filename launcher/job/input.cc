#include "launcher/job/input.h"

#include <unistd.h>

#include <cerrno>

namespace distrun::launcher {

void Input::watch(Poller& poller, const OnBytes& on_bytes) {
  if (!allowed_ || paused_ || ended_) return;
  poller.watch(0, POLLIN, [this, on_bytes](short) { read(on_bytes); });
}

void Input::read(const OnBytes& on_bytes) {
  std::vector<std::byte> bytes(32 * 1024);
  const ssize_t n = ::read(0, bytes.data(), bytes.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // With SIGTTIN ignored the kernel says EIO to a background process that reads its terminal.
  if (n < 0 && errno == EIO && ::isatty(0) != 0) {
    paused_ = true;
    return;
  }
  allowed_ = false;
  ended_ = n <= 0;
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  on_bytes(std::move(bytes));
}

}  // namespace distrun::launcher
