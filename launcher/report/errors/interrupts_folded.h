// After Ctrl-C, a Python program that loads its libraries prints a traceback that ends with KeyboardInterrupt. It says
// nothing about the program, so such tracebacks are counted and not shown. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/lines/line_assembler.h"

namespace distrun::launcher {

class InterruptsFolded {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{64} * 1024;  // of a traceback that is kept back

  explicit InterruptsFolded(std::size_t ranks) : ranks_(ranks) {}

  // From now on, tracebacks of these ranks are kept back until it is known how they end.
  void start(const std::vector<int>& ranks);
  // Takes a piece of standard error. Returns the pieces to show now.
  std::deque<Piece> pass(int rank, Piece piece);
  // The rank writes no more.
  std::deque<Piece> finish(int rank);
  // The ranks whose traceback is not shown.
  [[nodiscard]] std::vector<int> folded() const;

 private:
  enum class Stage {
    kOutside,
    kHeading,  // lines that Python prints before a traceback
    kInside,
    kInterrupted,  // a traceback has ended with KeyboardInterrupt; another one may follow from it
  };
  struct Rank {
    bool watched = false;
    bool folded = false;
    Stage stage = Stage::kOutside;
    bool loads = false;  // the traceback has the line of an import
    std::deque<Piece> pieces;
    std::size_t bytes = 0;
  };
  static Stage next(Rank& rank, std::string_view line);
  static std::deque<Piece> release(Rank& rank);

  std::vector<Rank> ranks_;
};

// The text for the screen. Empty without ranks.
std::string interrupted_text(const std::vector<int>& ranks);

}  // namespace distrun::launcher
