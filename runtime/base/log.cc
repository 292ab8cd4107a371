#include "runtime/base/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <memory>
#include <utility>

namespace distrun {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warning", "error", "off"};

constexpr int kTimeLimitMs = 100;

// poll() also returns for a closed descriptor. It counts as ready, because there is no way to report it.
bool has_room(int fd, int wait_ms) {
  pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&ready, 1, wait_ms) != 0;
}

// False if a part could not be written. A pipe that poll() calls ready takes PIPE_BUF bytes without blocking.
bool written(int fd, std::string_view text, int wait_ms) {
  while (!text.empty()) {
    if (!has_room(fd, wait_ms)) return false;
    const ssize_t n = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (n < 0 && errno == EAGAIN) return false;
    if (n < 0 && errno != EINTR) return true;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  return true;
}

LogLevel level_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return LogLevel::kWarning;  // not reached: settings.cc refuses other names
}

}  // namespace

Log::Log(std::string_view level, int rank, Sink sink)
    : level_(level_of(level)),
      prefix_(rank < 0 ? "distrun: " : "distrun: rank " + std::to_string(rank) + " "),
      sink_(sink ? std::move(sink) : lines_to(STDERR_FILENO)) {}

void Log::write(LogLevel level, std::string_view text) const {
  if (!enabled(level) || level == LogLevel::kOff) return;
  std::string line = prefix_ + std::string(kNames[static_cast<std::size_t>(level)]) + ": ";
  line += text;
  line += '\n';
  sink_(line);
}

Log::Sink lines_to(int fd) {
  return [fd, lost = std::make_shared<std::atomic<long>>(0)](const std::string& line) {
    const long missing = lost->load(std::memory_order_relaxed);
    const std::string before =
        missing == 0 ? "" : "distrun: lines that nobody read are lost here: " + std::to_string(missing) + "\n";
    if (!written(fd, before + line, missing == 0 ? kTimeLimitMs : 0)) {
      lost->fetch_add(1, std::memory_order_relaxed);
    } else {
      lost->fetch_sub(missing, std::memory_order_relaxed);
    }
  };
}

}  // namespace distrun
