#include "launcher/report/lines/time_order.h"

#include <algorithm>
#include <utility>

namespace distrun::launcher {
namespace {
constexpr std::size_t kLineOverhead = 128;

std::size_t size_of(const TimeOrder::Line& line) { return line.piece.text.size() + line.tag.size() + kLineOverhead; }
}  // namespace

TimePoint HostClock::moment(std::uint64_t there, TimePoint now) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 52U;  // about a century; fits nanoseconds
  const Duration since = std::chrono::microseconds(std::min(there, kMost));
  const Duration offset = now.time_since_epoch() - since;
  if (now >= period_end_) {
    earlier_ = now < period_end_ + kMemory ? offset_ : std::nullopt;
    offset_.reset();
    period_end_ = now + kMemory;
  }
  offset_ = std::min(offset_.value_or(offset), offset);
  last_ = std::max(last_, TimePoint(since + std::min(*offset_, earlier_.value_or(*offset_))));
  return last_;
}

HostClocks::HostClocks(const std::vector<std::string>& hosts) {
  std::map<std::string, std::size_t> numbers;
  for (const std::string& host : hosts) host_of_.push_back(numbers.emplace(host, numbers.size()).first->second);
  clocks_.resize(numbers.size());
}

void TimeOrder::add(TimePoint written, Line line) {
  held_bytes_ += size_of(line);
  lines_.emplace(written, std::move(line));
}

TimeOrder::Line TimeOrder::pop() {
  Line out = std::move(lines_.begin()->second);
  lines_.erase(lines_.begin());
  held_bytes_ -= size_of(out);
  return out;
}

std::vector<TimeOrder::Line> TimeOrder::take(TimePoint now) {
  std::vector<Line> out;
  while (!lines_.empty() && (held_bytes_ > kMostHeld || lines_.begin()->first + hold_ <= now)) out.push_back(pop());
  return out;
}

std::vector<TimeOrder::Line> TimeOrder::take_all() {
  std::vector<Line> out;
  while (!lines_.empty()) out.push_back(pop());
  return out;
}

std::optional<TimePoint> TimeOrder::deadline() const {
  if (lines_.empty()) return std::nullopt;
  return lines_.begin()->first + hold_;
}

}  // namespace distrun::launcher
