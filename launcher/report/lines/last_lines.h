// The last lines of each rank, for the report of its end. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/lines/last_exception.h"
#include "launcher/report/lines/line_assembler.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class LastLines {
 public:
  explicit LastLines(std::size_t ranks) : streams_(ranks * 2), exceptions_(ranks) {}

  // `stream`: 0 is standard output, 1 is standard error.
  void add(int rank, int stream, const Piece& piece, TimePoint written);
  // The last lines of both streams, in the order that the rank's agent read them. A program may buffer standard output
  // until it exits. That text does not displace recent lines of standard error.
  [[nodiscard]] std::vector<std::string> of(int rank) const;
  // The text that best explains the end of the rank: the exception, or a line. Prefers standard error if it has recent
  // lines.
  [[nodiscard]] std::string most_informative(int rank) const;
  // The exception at the end of the rank's standard error. None: something else is at its end.
  [[nodiscard]] std::optional<RaisedException> exception(int rank) const {
    return exceptions_[static_cast<std::size_t>(rank)].get();
  }

 private:
  struct Line {
    TimePoint written;
    std::string text;  // cut to a width
    bool bar = false;  // a progress bar
    bool cut = false;
  };
  [[nodiscard]] const std::deque<Line>& lines(int rank, int stream) const {
    return streams_[static_cast<std::size_t>(rank * 2 + stream)];
  }
  std::vector<std::deque<Line>> streams_;  // number rank * 2 + stream
  std::vector<LastException> exceptions_;
};

}  // namespace distrun::launcher
