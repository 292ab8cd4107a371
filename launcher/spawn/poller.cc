#include "launcher/spawn/poller.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace distrun::launcher {

void Poller::clear() {
  fds_.clear();
  callbacks_.clear();
}

void Poller::watch(int fd, short events, Callback on_ready) {
  fds_.push_back({.fd = fd, .events = events, .revents = 0});
  callbacks_.push_back(std::move(on_ready));
}

Status Poller::wait(std::optional<TimePoint> deadline) {
  timespec timeout{};
  if (deadline) {
    const auto left = std::max(Duration::zero(), Duration(*deadline - Clock::now()));
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    timeout.tv_sec = nanoseconds / 1'000'000'000;
    timeout.tv_nsec = nanoseconds % 1'000'000'000;
  }
  const int ready = ::ppoll(fds_.data(), fds_.size(), deadline ? &timeout : nullptr, nullptr);
  const int fault = errno;
  woke_ = Clock::now();
  if (ready < 0) {
    return fault == EINTR ? Status() : errno_status("ppoll", fault);
  }
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    if (fds_[i].revents != 0) callbacks_[i](fds_[i].revents);
  }
  return {};
}

std::optional<TimePoint> earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

}  // namespace distrun::launcher
