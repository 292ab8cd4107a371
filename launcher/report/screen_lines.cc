#include "launcher/report/screen_lines.h"

#include <string_view>
#include <utility>

namespace distrun::launcher {

bool ScreenLines::folds(int stream) const {
  return folding_ == Folding::kAlways || (folding_ == Folding::kOnTerminal && streams_.is_tty(stream));
}

void ScreenLines::show(int rank, int stream, Piece piece, TimePoint now) {
  const std::string stamp = tags_.stamp(Duration::zero());
  if (folds(stream) && piece.begins && piece.ends) {
    return fold_.add({.stream = stream, .stamp = stamp, .text = std::move(piece.text), .ranks = {rank}, .since = now});
  }
  show(fold_.take_up_to(rank, now), now);
  if (near_messages(stream)) shown_.add({rank}, piece.text, piece.begins);
  const bool colour = colour_ && streams_.is_tty(stream);
  streams_.sink(stream).add(rank * 2 + stream, stamp + tags_.tag({rank}, colour), std::move(piece), now);
}

void ScreenLines::show(int rank, int stream, std::deque<Piece> pieces, TimePoint now) {
  for (Piece& piece : pieces) show(rank, stream, std::move(piece), now);
}

void ScreenLines::show(std::vector<Fold::Line> lines, TimePoint now) {
  for (Fold::Line& line : lines) {
    if (near_messages(line.stream)) shown_.add(line.ranks, line.text, true);
    const bool colour = colour_ && streams_.is_tty(line.stream);
    streams_.sink(line.stream)
        .add(line.ranks.front() * 2 + line.stream, line.stamp + tags_.tag(line.ranks, colour),
             {.text = std::move(line.text)}, now);
  }
}

void ScreenLines::print(int stream, const std::string& stamp, const std::string& lines, TimePoint now) {
  const std::string_view all = lines;
  for (std::size_t at = 0; at < all.size(); at = all.find('\n', at) + 1) shown_.add({}, all.substr(at), true);
  streams_.sink(stream).add(kOwnStream, stamp, {.text = lines}, now);
}

bool ScreenLines::shows(int rank, const std::vector<std::string>& lines, TimePoint now) {
  show_all(now);
  return shown_.show(rank, lines);
}

}  // namespace distrun::launcher
