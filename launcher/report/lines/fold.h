// Shows a line that many ranks write once. A line waits here a moment for the copies of other ranks. The order of one
// rank's lines never changes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class Fold {
 public:
  // How long a line waits for ranks that have not written it.
  static constexpr Duration kWait = std::chrono::milliseconds(200);
  static constexpr std::size_t kMostHeld = std::size_t{1} << 20;

  struct Line {
    int stream = 0;       // lines of different streams are never merged
    std::string stamp{};  // of the first copy
    std::string text{};   // as the first rank wrote it
    std::vector<int> ranks{};
    TimePoint since{};
  };

  explicit Fold(std::size_t ranks) : ranks_(ranks), live_(ranks) {}

  // `line.ranks` has only the rank that wrote it.
  void add(Line line);
  // This rank writes no more, so no line waits for it.
  void finished(int rank);
  [[nodiscard]] bool holds(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)).held > 0; }

  // Lines that need not wait any longer, in order.
  std::vector<Line> take(TimePoint now);
  // The same, and all lines up to the last one of this rank.
  std::vector<Line> take_up_to(int rank, TimePoint now);
  std::vector<Line> take_all();
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  using Place = std::uint64_t;  // order of the lines on the screen
  struct Rank {
    std::size_t held = 0;  // lines waiting here
    Place last = 0;        // place of the last of these lines
    bool finished = false;
  };
  struct Held {
    Line line;
    std::string key;
    std::size_t missing = 0;  // running ranks that have not written this line
  };
  Rank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] Place find_copy(int rank, const std::string& key);
  [[nodiscard]] std::optional<std::vector<Place>> must_precede(Place line, Place last) const;
  Place move_before(Place line, Place last, const std::vector<Place>& earlier);
  void join(int rank, Place place);
  void pop(std::vector<Line>& out);

  std::vector<Rank> ranks_;
  std::size_t live_;  // ranks that have not finished
  Place next_ = 1;
  std::map<Place, Held> lines_;
  std::unordered_map<std::string, std::set<Place>> copies_;  // by the text of a line
  std::multiset<TimePoint> since_;                           // of all lines
  std::size_t held_bytes_ = 0;
};

}  // namespace distrun::launcher
