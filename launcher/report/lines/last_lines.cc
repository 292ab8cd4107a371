#include "launcher/report/lines/last_lines.h"

#include <algorithm>
#include <string_view>

namespace distrun::launcher {
namespace {

constexpr std::size_t kMostLines = 20;
constexpr std::size_t kWidth = 400;
// Text on standard error belongs to the end of a rank if it is at most this much older than its last line.
constexpr Duration kOfLate = std::chrono::seconds(5);

// The beginning of a long line. Cuts neither a character nor the sequence of a colour.
std::string beginning_of(std::string_view text) {
  text = whole_characters(text.substr(0, kWidth));
  const std::size_t colour = text.rfind('\x1b');
  if (colour == std::string_view::npos) return std::string(text) + " ...";
  if (text.find('m', colour) == std::string_view::npos) text = text.substr(0, colour);
  return std::string(text) + "\x1b[0m ...";
}

}  // namespace

void LastLines::add(int rank, int stream, const Piece& piece, TimePoint written) {
  std::deque<Line>& lines = streams_[static_cast<std::size_t>(rank * 2 + stream)];
  if (piece.begins || lines.empty()) lines.emplace_back();
  if (lines.size() > kMostLines) lines.pop_front();
  Line& line = lines.back();
  line.written = written;
  line.bar = piece.redrawn;
  if (!line.cut) {
    line.text += std::string_view(piece.text).substr(0, piece.text.find('\n'));
    line.cut = line.text.size() > kWidth;
    if (line.cut) line.text = beginning_of(line.text);
  }
  if (stream == 1 && piece.ends) exceptions_[static_cast<std::size_t>(rank)].add(line.text, written);
}

std::vector<std::string> LastLines::of(int rank) const {
  const std::deque<Line>& output = lines(rank, 0);
  const std::deque<Line>& error = lines(rank, 1);
  auto out = output.begin();
  auto err = error.begin();
  const TimePoint late = output.empty() ? TimePoint::min() : output.back().written - kOfLate;
  const auto of_late = std::find_if(err, error.end(), [&](const Line& line) { return line.written >= late; });
  // Drops the oldest lines, but never recent lines of standard error in favour of standard output.
  while ((output.end() - out) + (error.end() - err) > std::ptrdiff_t{kMostLines}) {
    if (err < of_late && err->written < out->written) {
      ++err;
    } else {
      ++out;
    }
  }
  std::vector<std::string> merged;
  while (out != output.end() || err != error.end()) {
    const bool error_next = out == output.end() || (err != error.end() && err->written < out->written);
    merged.push_back((error_next ? err++ : out++)->text);
  }
  return merged;
}

std::string LastLines::most_informative(int rank) const {
  const std::deque<Line>& output = lines(rank, 0);
  const std::deque<Line>& error = lines(rank, 1);
  const bool of_late = !error.empty() && (output.empty() || error.back().written + kOfLate >= output.back().written);
  const std::deque<Line>& last = of_late ? error : output;
  if (last.empty()) return "";
  if (of_late) {
    if (const auto raised = exception(rank)) return raised->text;
  }
  // A progress bar is often drawn once more when its program ends, after the reason for the end.
  const auto said =
      std::find_if(last.rbegin(), last.rend(), [](const Line& line) { return !line.bar && !line.text.empty(); });
  const bool just_before = said != last.rend() && said->written + kOfLate >= last.back().written;
  return just_before ? said->text : last.back().text;
}

}  // namespace distrun::launcher
