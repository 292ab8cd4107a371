#include "launcher/report/errors/kept_back.h"

#include <utility>

namespace distrun::launcher {

void KeptBack::start_all_but(int rank) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (static_cast<int>(i) != rank) ranks_[i].silenced = true;
  }
}

std::optional<Piece> KeptBack::pass(int rank, Piece piece) {
  Rank& from = ranks_[static_cast<std::size_t>(rank)];
  if (!from.silenced || from.in_long_line) {
    from.in_long_line = !piece.ends;
    return piece;
  }
  add(rank, std::move(piece));
  return std::nullopt;
}

void KeptBack::add(int rank, Piece piece) {
  Rank& from = ranks_[static_cast<std::size_t>(rank)];
  from.bytes += piece.text.size();
  from.pieces.push_back(std::move(piece));
  while (from.bytes > kMostBytes && from.pieces.size() > 1) {
    from.bytes -= from.pieces.front().text.size();
    from.pieces.pop_front();
  }
}

std::deque<Piece> KeptBack::release(int rank) {
  Rank& from = ranks_[static_cast<std::size_t>(rank)];
  from.silenced = false;
  from.bytes = 0;
  return std::exchange(from.pieces, {});
}

}  // namespace distrun::launcher
