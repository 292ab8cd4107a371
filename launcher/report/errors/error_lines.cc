#include "launcher/report/errors/error_lines.h"

#include <iterator>

namespace distrun::launcher {

void ErrorLines::keep_waiting(int rank) {
  for (Piece& piece : repeated_.take(rank).pieces) kept_back_.add(rank, std::move(piece));
  for (Piece& piece : prompts_.take(rank)) kept_back_.add(rank, std::move(piece));
}

void ErrorLines::keep_back(int rank) {
  if (all_) return;
  keep_waiting(rank);
  kept_back_.start(rank);
}

std::deque<Piece> ErrorLines::keep_back_all_but(int rank) {
  if (all_) return {};
  failure_known_ = true;
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank) keep_waiting(other);
  }
  kept_back_.start_all_but(rank);
  return rank < 0 ? std::deque<Piece>() : kept_back_.release(rank);
}

std::deque<Piece> ErrorLines::pass(int rank, Piece piece, bool first, TimePoint now) {
  auto passed = kept_back_.pass(rank, std::move(piece));
  if (!passed) return {};
  if (all_) return interrupts_.pass(rank, *std::move(passed));
  return pass_on(rank, prompts_.pass(rank, *std::move(passed), now), first, now);
}

std::deque<Piece> ErrorLines::pass_on(int rank, std::deque<Piece> pieces, bool first, TimePoint now) {
  std::deque<Piece> out;
  for (Piece& piece : pieces) {
    for (Piece& one : interrupts_.pass(rank, std::move(piece))) {
      if (interrupted_) {
        out.push_back(std::move(one));
        continue;
      }
      std::deque<Piece> shown = repeated_.pass(rank, std::move(one), first, now);
      std::move(shown.begin(), shown.end(), std::back_inserter(out));
    }
  }
  return out;
}

// An error of another rank, which is on the screen already, is not shown if it is a part of the job's failure.
std::deque<Piece> ErrorLines::without_repeated(RepeatedErrors::Release release, bool failure_known) {
  if (failure_known) {
    release.pieces.erase(release.pieces.begin(),
                         release.pieces.begin() + static_cast<std::ptrdiff_t>(release.repeated));
  }
  return std::move(release.pieces);
}

std::deque<Piece> ErrorLines::finish(int rank, TimePoint now) {
  std::deque<Piece> out = pass_on(rank, prompts_.finish(rank), false, now);
  std::deque<Piece> interrupted = interrupts_.finish(rank);
  std::move(interrupted.begin(), interrupted.end(), std::back_inserter(out));
  if (!failure_known_) return out;
  std::deque<Piece> held = without_repeated(repeated_.take(rank), true);
  std::move(held.begin(), held.end(), std::back_inserter(out));
  return out;
}

std::vector<ErrorLines::Of> ErrorLines::release(int rank) {
  std::vector<Of> out;
  for (int i = 0; i < ranks_; ++i) {
    if (rank < 0 || i == rank) out.push_back({.rank = i, .pieces = kept_back_.release(i)});
  }
  return out;
}

std::vector<ErrorLines::Of> ErrorLines::due(TimePoint now) {
  std::vector<Of> out;
  while (auto waited = prompts_.take_due(now)) {
    out.push_back({.rank = waited->first, .pieces = pass_on(waited->first, std::move(waited->second), false, now)});
  }
  for (RepeatedErrors::Release& one : repeated_.due(now)) {
    const int rank = one.rank;
    out.push_back({.rank = rank, .pieces = without_repeated(std::move(one), failure_known_)});
  }
  return out;
}

}  // namespace distrun::launcher
