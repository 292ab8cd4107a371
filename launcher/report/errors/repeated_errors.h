// If many ranks fail in the same way, one traceback is shown. A traceback that repeats the one of another rank is held
// for a moment. If a failure of the job becomes known in that time, it is not shown. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/report/lines/line_assembler.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class RepeatedErrors {
 public:
  // How long a repeated traceback waits for the news that its rank has failed. A loaded machine needs more than a
  // second to end a program.
  static constexpr Duration kWait = std::chrono::seconds(2);
  // The same for the first line of a rank, which may be the reason for its end or the beginning of its work.
  static constexpr Duration kWaitOfFirst = std::chrono::milliseconds(500);
  static constexpr std::size_t kMostBytes = std::size_t{64} * 1024;  // held per rank
  static constexpr std::size_t kMostLines = 150;                     // of another rank, to compare with

  struct Release {
    int rank = 0;
    std::deque<Piece> pieces;
    std::size_t repeated = 0;  // how many of them, from the first on, repeat another rank's error
  };

  // Takes a piece of standard error. Returns the pieces to show now. `first`: the first lines of the rank are held too,
  // if another rank has written them.
  std::deque<Piece> pass(int rank, Piece piece, bool first, TimePoint now);
  // The pieces of all ranks that need not wait any longer.
  std::vector<Release> due(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  [[nodiscard]] bool holds(int rank) const { return held_.contains(rank); }
  // Ends the wait of this rank.
  Release take(int rank);

 private:
  [[nodiscard]] std::vector<int> holding() const;
  // The lines that a rank has shown last. The number of the oldest one grows when lines are dropped.
  struct Shown {
    std::uint64_t oldest = 0;
    std::deque<std::string> lines;
  };
  // A place in the lines of another rank from which on the held lines may be the same.
  struct Candidate {
    int rank = 0;
    std::uint64_t from = 0;
    std::size_t equal = 0;  // held lines that have been compared
  };
  struct Held {
    std::vector<Candidate> candidates;
    std::deque<Piece> pieces;
    std::vector<std::string> lines;  // those to compare: of the error, without what comes after it, or first lines
    bool error = false;              // an error has begun
    bool whole = false;              // no error has begun, or its last line is among `lines`
    std::size_t bytes = 0;
    TimePoint until;
  };
  [[nodiscard]] std::vector<Candidate> places_of(int rank, std::string_view line) const;
  bool compare(Held& held) const;
  bool add(Held& held, const Piece& piece, TimePoint now) const;
  void note_shown(int rank, const std::deque<Piece>& pieces);

  std::map<int, Shown> shown_;
  std::map<int, Held> held_;
};

}  // namespace distrun::launcher
