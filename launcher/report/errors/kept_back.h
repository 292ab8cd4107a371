// Follow-up errors. After the first failure, standard error of the other ranks is kept here and not shown. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "launcher/report/lines/line_assembler.h"

namespace distrun::launcher {

class KeptBack {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{64} * 1024;  // per rank; older pieces are dropped

  explicit KeptBack(std::size_t ranks) : ranks_(ranks) {}

  void start(int rank) { ranks_[static_cast<std::size_t>(rank)].silenced = true; }
  void start_all_but(int rank);
  void add(int rank, Piece piece);
  [[nodiscard]] bool silences(int rank) const { return at(rank).silenced; }
  // Returns the piece if it is to be shown. All pieces of a long line are treated like its first one.
  std::optional<Piece> pass(int rank, Piece piece);
  // From now on this rank is shown. Returns its pieces that were kept back, to be shown first.
  std::deque<Piece> release(int rank);

 private:
  struct Rank {
    bool silenced = false;
    bool in_long_line = false;
    std::deque<Piece> pieces;
    std::size_t bytes = 0;
  };
  [[nodiscard]] const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  std::vector<Rank> ranks_;
};

}  // namespace distrun::launcher
