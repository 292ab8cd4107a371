#include "launcher/report/errors/interrupts_folded.h"

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "launcher/report/lines/last_exception.h"

namespace distrun::launcher {
namespace {

template <std::size_t N>
bool begins_with_any(std::string_view line, const std::array<std::string_view, N>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [line](auto begin) { return line.starts_with(begin); });
}

// Python prints these before a traceback, if it has not started yet or cannot raise the exception.
bool is_heading(std::string_view line) {
  constexpr std::array<std::string_view, 3> kFatal = {
      "Fatal Python error: ", "Python runtime state: ", "Exception ignored in: "};
  return begins_with_any(line, kFatal);
}

// A line of code, or a frame of the part of Python that loads modules.
bool is_of_import(std::string_view line) {
  constexpr std::array<std::string_view, 4> kImports = {"    import ", "    from ", "  File \"<frozen importlib",
                                                        "  File \"<frozen site>"};
  return begins_with_any(line, kImports);
}

}  // namespace

void InterruptsFolded::start(const std::vector<int>& ranks) {
  for (const int rank : ranks) ranks_[static_cast<std::size_t>(rank)].watched = true;
}

// The stage after this line.
InterruptsFolded::Stage InterruptsFolded::next(Rank& rank, std::string_view line) {
  if (begins_traceback(line)) return Stage::kInside;
  switch (rank.stage) {
    case Stage::kOutside:
    case Stage::kHeading:
      return is_heading(line) ? Stage::kHeading : Stage::kOutside;
    case Stage::kInside:
      rank.loads = rank.loads || is_of_import(line);
      if (continues_traceback(line)) return Stage::kInside;
      return rank.loads && line.starts_with("KeyboardInterrupt") ? Stage::kInterrupted : Stage::kOutside;
    case Stage::kInterrupted:
      break;
  }
  return connects_tracebacks(line) ? Stage::kInterrupted : Stage::kOutside;
}

std::deque<Piece> InterruptsFolded::release(Rank& rank) {
  rank.stage = Stage::kOutside;
  rank.loads = false;
  rank.bytes = 0;
  return std::exchange(rank.pieces, {});
}

std::deque<Piece> InterruptsFolded::pass(int rank, Piece piece) {
  Rank& own = ranks_[static_cast<std::size_t>(rank)];
  const Stage before = own.stage;
  if (own.watched && piece.begins) own.stage = next(own, std::string_view(piece.text).substr(0, piece.text.find('\n')));
  if (before == Stage::kInterrupted && own.stage == Stage::kOutside) {
    own.folded = true;
    release(own);
  }
  own.bytes += piece.text.size();
  own.pieces.push_back(std::move(piece));
  const bool keeps = own.stage != Stage::kOutside && own.bytes <= kMostBytes;
  return keeps ? std::deque<Piece>() : release(own);
}

std::deque<Piece> InterruptsFolded::finish(int rank) {
  Rank& own = ranks_[static_cast<std::size_t>(rank)];
  if (own.stage != Stage::kInterrupted) return release(own);
  own.folded = true;
  release(own);
  return {};
}

std::vector<int> InterruptsFolded::folded() const {
  std::vector<int> out;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].folded) out.push_back(static_cast<int>(i));
  }
  return out;
}

std::string interrupted_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return {};
  const bool many = ranks.size() > 1;
  return rank_list(ranks) + (many ? " were" : " was") + " loading libraries when " + (many ? "they were" : "it was") +
         " interrupted";
}

}  // namespace distrun::launcher
