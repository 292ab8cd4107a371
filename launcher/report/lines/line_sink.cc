#include "launcher/report/lines/line_sink.h"

#include <algorithm>
#include <utility>

namespace distrun::launcher {
namespace {
constexpr Duration kStall = std::chrono::seconds(5);
constexpr std::size_t kMostWaiting = std::size_t{64} << 20;
constexpr char kEraseLine[] = "\r\x1b[K";
constexpr char kNoWrap[] = "\x1b[?7l";  // cut at the right edge (DECAWM)
constexpr char kWrap[] = "\x1b[?7h";
}  // namespace

void LineSink::clear_drawing() {
  if (drawn_ == 1) text_ += kEraseLine;
  if (drawn_ > 1) text_ += "\r\x1b[" + std::to_string(drawn_ - 1) + "A\x1b[J";
  drawn_ = 0;
}

void LineSink::add(int stream, const std::string& tag, Piece piece, TimePoint now) {
  if (owner_ && *owner_ != stream && pauses_) break_line(now);
  if (owner_ && *owner_ != stream) {
    waiting_bytes_ += piece.text.size();
    ++waiting_by_stream_[stream];
    waiting_.push_back({stream, tag, std::move(piece)});
    if (waiting_bytes_ > kMostWaiting) break_line(now);
    return;
  }
  write(stream, tag, piece, now);
  if (!owner_) release(now);
}

void LineSink::raw(std::string_view text, TimePoint now) {
  if (text.empty()) return;
  if (owner_) break_line(now);
  clear_drawing();
  text_ += text;
  raw_line_ = !text.ends_with('\n');
}

void LineSink::write(int stream, const std::string& tag, const Piece& piece, TimePoint now) {
  // The end of a line that was broken exactly there.
  if (!piece.begins && !owner_ && piece.text == "\n") return;
  clear_drawing();
  if (std::exchange(raw_line_, false)) text_ += '\n';
  // A stream whose line was broken continues below, with a new tag.
  if (piece.begins || !owner_) text_ += tag;
  text_ += piece.text;
  pauses_ = piece.pauses;
  owner_ = piece.ends ? std::nullopt : std::optional<int>(stream);
  owner_seen_ = now;
}

LineSink::Waiting LineSink::take_waiting(std::deque<Waiting>::iterator at) {
  Waiting out = std::move(*at);
  waiting_.erase(at);
  waiting_bytes_ -= out.piece.text.size();
  if (--waiting_by_stream_[out.stream] == 0) waiting_by_stream_.erase(out.stream);
  return out;
}

void LineSink::release(TimePoint now) {
  while (!owner_ && !waiting_.empty()) {
    const Waiting next = take_waiting(waiting_.begin());
    write(next.stream, next.tag, next.piece, now);
    // This stream may be in a long line itself. Then its waiting pieces come before those of other streams.
    if (owner_) release_stream(next.stream, now);
  }
}

void LineSink::release_stream(int stream, TimePoint now) {
  while (owner_ == stream && waiting_by_stream_.contains(stream)) {
    const auto at =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.stream == stream; });
    const Waiting next = take_waiting(at);
    write(next.stream, next.tag, next.piece, now);
  }
}

void LineSink::break_line(TimePoint now) {
  text_ += '\n';
  owner_.reset();
  release(now);
}

void LineSink::draw(const std::string& tag, const std::vector<std::string>& lines) {
  if (!terminal_ || owner_ || raw_line_) return;
  clear_drawing();
  if (lines.empty()) return;
  // Without this, a bar wider than the terminal would leave a row behind each time it is drawn.
  text_ += kNoWrap;
  for (const std::string& line : lines) {
    text_ += std::exchange(drawn_, drawn_ + 1) == 0 ? "" : "\n";
    text_ += tag + line;
  }
  text_ += kWrap;
}

void LineSink::tick(TimePoint now) {
  if (const auto at = deadline(); at && now >= *at) break_line(now);
}

std::optional<TimePoint> LineSink::deadline() const {
  if (!owner_ || waiting_.empty()) return std::nullopt;
  return owner_seen_ + kStall;
}

}  // namespace distrun::launcher
