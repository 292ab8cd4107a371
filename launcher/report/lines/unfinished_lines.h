// Decides when to show the unfinished line of a stream, such as a prompt or a progress bar. Pure.
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

  // `waits`: the stream has such a line now. The line is due `delay` after the first call that says so.
  void follow(std::size_t stream, bool waits, Duration delay, TimePoint now);
  // The streams whose line must be shown now. Each one counts as not waiting until follow() or again() is called for
  // it.
  std::vector<std::size_t> due(TimePoint now);
  void again(std::size_t stream, TimePoint when);
  // How many characters of the line the user has seen. 0 when a line begins to wait.
  std::size_t& shown(std::size_t stream) { return lines_[stream].shown; }
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  struct Line {
    std::optional<TimePoint> due;
    std::size_t shown = 0;
  };
  std::vector<Line> lines_;
  std::set<std::pair<TimePoint, std::size_t>> order_;  // of the waiting lines
};

}  // namespace distrun::launcher
