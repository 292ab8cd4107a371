#include "launcher/job/start/start_queue.h"

#include <algorithm>
#include <random>
#include <utility>

namespace distrun::launcher {

double StartQueue::random_fraction() {
  std::random_device device;
  return std::uniform_real_distribution<double>(0, 1)(device);
}

StartQueue::StartQueue(std::size_t hosts, const Limits& limits, std::function<double()> random)
    : limits_(limits), random_(std::move(random)), hosts_(hosts), open_(hosts) {}

std::vector<std::size_t> StartQueue::due(TimePoint now) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < hosts_.size() && running_ < limits_.at_a_time; ++i) {
    Host& host = hosts_[i];
    if (host.state != State::kWaiting || host.when > now) continue;
    host.state = State::kStarted;
    ++host.attempts;
    host.first = std::min(host.first, now);
    host.when = limits_.keep_trying ? limit(host) : now + limits_.answer;
    ++running_;
    out.push_back(i);
  }
  return out;
}

TimePoint StartQueue::limit(const Host& host) const { return host.first + limits_.answer; }

void StartQueue::close(Host& host) {
  if (host.state == State::kClosed) return;
  if (host.state == State::kStarted) --running_;
  host.state = State::kClosed;
  --open_;
}

void StartQueue::answered(std::size_t host) { close(hosts_.at(host)); }

void StartQueue::hand_over(std::size_t host) {
  hosts_.at(host) = {.state = State::kHandedOver, .when = TimePoint::max()};
}

void StartQueue::ordered(std::size_t host, TimePoint now) {
  if (handed_over(host)) hosts_[host].when = now + limits_.by_another;
}

void StartQueue::arrived(std::size_t host, TimePoint now) {
  if (!handed_over(host)) return;
  hosts_[host] = {.state = State::kStarted, .attempts = limits_.attempts, .first = now, .when = now + limits_.answer};
  ++running_;
}

bool StartQueue::take_back(std::size_t host) {
  if (!handed_over(host)) return false;
  hosts_[host] = {};
  return true;
}

std::vector<std::size_t> StartQueue::late(TimePoint now) const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (handed_over(i) && hosts_[i].when <= now) out.push_back(i);
  }
  return out;
}

bool StartQueue::failed(std::size_t index, bool may_pass, TimePoint now) {
  Host& host = hosts_.at(index);
  if (host.state == State::kClosed) return false;
  constexpr int kMostDoublings = 3;
  const double times = static_cast<double>(1 << std::min(host.attempts - 1, kMostDoublings)) + random_();
  const TimePoint next = now + std::chrono::duration_cast<Duration>(limits_.pause * times);
  const bool over = limits_.keep_trying ? next >= limit(host) : host.attempts >= limits_.attempts;
  if (!may_pass || over) {
    close(host);
    return false;
  }
  if (host.state == State::kStarted) --running_;
  host.state = State::kWaiting;
  host.when = next;
  return true;
}

std::vector<std::size_t> StartQueue::overdue(TimePoint now) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].state != State::kStarted || hosts_[i].when > now) continue;
    close(hosts_[i]);
    out.push_back(i);
  }
  return out;
}

TimePoint StartQueue::deadline() const {
  TimePoint next = TimePoint::max();
  for (const Host& host : hosts_) {
    const bool full = host.state == State::kWaiting && running_ >= limits_.at_a_time;
    if (host.state != State::kClosed && !full) next = std::min(next, host.when);
  }
  return next;
}

}  // namespace distrun::launcher
