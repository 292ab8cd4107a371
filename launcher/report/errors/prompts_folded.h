// A rank that asks at a prompt has no input, and Python raises BdbQuit or EOFError. The report of the failure says
// where that was and what to do. So the traceback is not shown if it is the last text of a rank that failed. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/report/lines/last_exception.h"
#include "launcher/report/lines/line_assembler.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class PromptsFolded {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{64} * 1024;  // of a traceback that is kept back
  // A program whose traceback ends with such an exception may go on. Its traceback is shown after this time.
  static constexpr Duration kWait = std::chrono::seconds(2);

  explicit PromptsFolded(std::size_t ranks) : ranks_(ranks) {}

  // Takes a piece of standard error. Returns the pieces to show now.
  std::deque<Piece> pass(int rank, Piece piece, TimePoint now) {
    Rank& own = at(rank);
    if (piece.begins) own.stage = next(own.stage, std::string_view(piece.text).substr(0, piece.text.find('\n')));
    if (own.pieces.empty()) own.since = now;
    own.bytes += piece.text.size();
    own.pieces.push_back(std::move(piece));
    return own.stage == Stage::kOutside || own.bytes > kMostBytes ? release(own) : std::deque<Piece>();
  }
  [[nodiscard]] bool holds(int rank) const { return !ranks_[static_cast<std::size_t>(rank)].pieces.empty(); }
  // What is kept back of this rank.
  std::deque<Piece> take(int rank) { return release(at(rank)); }
  // The rank has exited with an error.
  void failed(int rank) { at(rank).failed = true; }
  // The rank writes no more.
  std::deque<Piece> finish(int rank) {
    Rank& own = at(rank);
    const bool folds = own.failed && own.stage == Stage::kAtPrompt;
    std::deque<Piece> rest = release(own);
    return folds ? std::deque<Piece>() : rest;
  }
  // A rank whose pieces have waited long enough, and these pieces. Call it until it returns none.
  std::optional<std::pair<int, std::deque<Piece>>> take_due(TimePoint now) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].pieces.empty() && ranks_[i].since + kWait <= now)
        return std::pair(static_cast<int>(i), release(ranks_[i]));
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<TimePoint> deadline() const {
    std::optional<TimePoint> out;
    for (const Rank& rank : ranks_) {
      if (!rank.pieces.empty()) out = earlier(out, rank.since + kWait);
    }
    return out;
  }

 private:
  enum class Stage {
    kOutside,
    kInside,    // of a traceback
    kAtPrompt,  // a traceback has ended with an exception of a prompt; another one may follow from it
  };
  struct Rank {
    Stage stage = Stage::kOutside;
    bool failed = false;
    std::deque<Piece> pieces;
    std::size_t bytes = 0;
    TimePoint since{};  // of the first piece
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // The stage after this line.
  static Stage next(Stage stage, std::string_view line) {
    if (begins_traceback(line)) return Stage::kInside;
    if (stage == Stage::kInside && continues_traceback(line)) return Stage::kInside;
    if (stage == Stage::kInside) return is_end_of_input(exception_in(line)) ? Stage::kAtPrompt : Stage::kOutside;
    return stage == Stage::kAtPrompt && connects_tracebacks(line) ? Stage::kAtPrompt : Stage::kOutside;
  }
  static std::deque<Piece> release(Rank& rank) {
    rank.stage = Stage::kOutside;
    rank.bytes = 0;
    return std::exchange(rank.pieces, {});
  }

  std::vector<Rank> ranks_;
};

}  // namespace distrun::launcher
