// Which lines of the ranks' standard error are shown, and when: follow-up errors are kept back, and tracebacks of
// Ctrl-C are folded. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/report/lines/interrupts_folded.h"
#include "launcher/report/lines/kept_back.h"

namespace distrun::launcher {

class ErrorLines {
 public:
  // `all`: everything is shown at once (--all-errors).
  ErrorLines(std::size_t ranks, bool all) : all_(all), kept_back_(ranks), interrupts_(ranks) {}

  // From now on, standard error of all ranks but this one is kept back.
  void keep_back_all_but(int rank) {
    if (!all_) kept_back_.start_all_but(rank);
  }
  // Ctrl-C has interrupted these ranks before they used the runtime. Their tracebacks are not shown if they were
  // loading libraries.
  void fold_interrupts(const std::vector<int>& ranks) {
    if (!all_) interrupts_.start(ranks);
  }
  [[nodiscard]] std::vector<int> interrupted() const { return interrupts_.folded(); }
  [[nodiscard]] bool silences(int rank) const { return kept_back_.silences(rank); }

  // Each of these returns the pieces to show now.
  std::deque<Piece> pass(int rank, Piece piece) {
    auto passed = kept_back_.pass(rank, std::move(piece));
    return passed ? interrupts_.pass(rank, *std::move(passed)) : std::deque<Piece>();
  }
  std::deque<Piece> finish(int rank) { return interrupts_.finish(rank); }   // it writes no more
  std::deque<Piece> release(int rank) { return kept_back_.release(rank); }  // those that were kept back

 private:
  const bool all_;
  KeptBack kept_back_;
  InterruptsFolded interrupts_;
};

}  // namespace distrun::launcher
