#include "launcher/report/lines/unfinished_lines.h"

namespace distrun::launcher {

void UnfinishedLines::follow(std::size_t stream, bool waits, Duration delay, TimePoint now) {
  Line& line = lines_[stream];
  if (waits == line.due.has_value()) return;
  if (waits) return again(stream, now + delay);
  order_.erase({*line.due, stream});
  line = {};
}

std::vector<std::size_t> UnfinishedLines::due(TimePoint now) {
  std::vector<std::size_t> out;
  while (!order_.empty() && order_.begin()->first <= now) {
    out.push_back(order_.begin()->second);
    lines_[out.back()].due.reset();
    order_.erase(order_.begin());
  }
  return out;
}

void UnfinishedLines::again(std::size_t stream, TimePoint when) {
  lines_[stream].due = when;
  order_.emplace(when, stream);
}

std::optional<TimePoint> UnfinishedLines::deadline() const {
  return order_.empty() ? std::nullopt : std::optional(order_.begin()->first);
}

}  // namespace distrun::launcher
