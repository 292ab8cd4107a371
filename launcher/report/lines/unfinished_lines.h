// When the line that a stream has not ended yet is to be shown: a prompt, or a progress bar. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class UnfinishedLines {
 public:
  explicit UnfinishedLines(std::size_t streams) : lines_(streams) {}

  // `waits`: the stream has such a line now. It is due `delay` after the first call that says so.
  void follow(std::size_t stream, bool waits, Duration delay, TimePoint now);
  // The streams whose line is to be shown now. Each counts as not waiting until follow() or again().
  std::vector<std::size_t> due(TimePoint now);
  void again(std::size_t stream, TimePoint when);
  // How much of the line the user has seen; 0 when a line begins to wait.
  std::size_t& shown(std::size_t stream) { return lines_[stream].shown; }
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  struct Line {
    std::optional<TimePoint> due;
    std::size_t shown = 0;
  };
  std::vector<Line> lines_;
  std::set<std::pair<TimePoint, std::size_t>> order_;  // of those that wait
};

}  // namespace distrun::launcher
