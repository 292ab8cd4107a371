// Which lines of the ranks' standard error are shown, and when: follow-up errors are kept back, equal errors of many
// ranks are shown once, and tracebacks of Ctrl-C and of prompts are folded. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/report/errors/interrupts_folded.h"
#include "launcher/report/errors/kept_back.h"
#include "launcher/report/errors/prompts_folded.h"
#include "launcher/report/errors/repeated_errors.h"

namespace distrun::launcher {

class ErrorLines {
 public:
  struct Of {
    int rank = 0;
    std::deque<Piece> pieces;
  };
  // `all`: everything is shown at once (--all-errors).
  ErrorLines(std::size_t ranks, bool all)
      : ranks_(static_cast<int>(ranks)), all_(all), kept_back_(ranks), prompts_(ranks), interrupts_(ranks) {}

  // From now on, standard error of this rank is kept back.
  void keep_back(int rank);
  // The first cause is known. The same for all ranks but this one, whose kept lines are returned.
  std::deque<Piece> keep_back_all_but(int rank);
  // Ctrl-C has interrupted these ranks before they used the runtime. Their tracebacks are not shown if they were
  // loading libraries.
  void fold_interrupts(const std::vector<int>& ranks) {
    interrupted_ = true;
    if (!all_) interrupts_.start(ranks);
  }
  void failed(int rank) { prompts_.failed(rank); }  // it has exited with an error
  [[nodiscard]] std::vector<int> interrupted() const { return interrupts_.folded(); }
  [[nodiscard]] bool silences(int rank) const {
    return kept_back_.silences(rank) || prompts_.holds(rank) || repeated_.holds(rank);
  }

  // Each of these returns the pieces to show now. `first`: as in RepeatedErrors.
  std::deque<Piece> pass(int rank, Piece piece, bool first, TimePoint now);
  std::deque<Piece> finish(int rank, TimePoint now);  // it writes no more
  std::vector<Of> release(int rank);                  // those of this rank that were kept back; -1: of all
  std::vector<Of> due(TimePoint now);                 // those that have waited long enough
  [[nodiscard]] std::optional<TimePoint> deadline() const { return earlier(prompts_.deadline(), repeated_.deadline()); }

 private:
  void keep_waiting(int rank);  // keeps back the pieces that the other parts have not shown yet
  std::deque<Piece> pass_on(int rank, std::deque<Piece> pieces, bool first, TimePoint now);
  static std::deque<Piece> without_repeated(RepeatedErrors::Release release, bool failure_known);

  const int ranks_;
  const bool all_;
  bool failure_known_ = false;
  bool interrupted_ = false;
  KeptBack kept_back_;
  PromptsFolded prompts_;
  InterruptsFolded interrupts_;
  RepeatedErrors repeated_;
};

}  // namespace distrun::launcher
