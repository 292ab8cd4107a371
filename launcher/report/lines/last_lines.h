// The last lines that each rank wrote, for the report of its end. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class LastLines {
 public:
  explicit LastLines(std::size_t ranks) : streams_(ranks * 2) {}

  // `stream`: 0 is standard output, 1 is standard error.
  void add(int rank, int stream, std::string_view line, TimePoint written);
  // Of both streams, in the order in which the rank's agent read them. What a program has kept for standard output
  // until it exits does not push out what it said on standard error just before.
  [[nodiscard]] std::vector<std::string> of(int rank) const;
  // The line that says most about the rank's end: of standard error, if that has any of late.
  [[nodiscard]] std::string most_telling(int rank) const;

 private:
  struct Line {
    TimePoint written;
    std::string text;  // as it looks on a terminal, cut to a width
    bool bar = false;  // it has been drawn over
  };
  [[nodiscard]] const std::deque<Line>& lines(int rank, int stream) const {
    return streams_[static_cast<std::size_t>(rank * 2 + stream)];
  }
  std::vector<std::deque<Line>> streams_;  // number rank * 2 + stream
};

}  // namespace distrun::launcher
