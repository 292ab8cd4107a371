#include "launcher/report/output.h"

#include <sys/time.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace distrun::launcher {
namespace {

constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailWidth = 400;
constexpr std::size_t kKeptBack = 64 * 1024;  // of one stream
// Above this a terminal counts as behind, and agents get no more credit.
constexpr std::size_t kHighWater = 256 * 1024;
constexpr int kOwnStream = -1;

std::string wall_clock() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  tm local{};
  ::localtime_r(&now.tv_sec, &local);
  char text[64];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, ".%03d ", static_cast<int>(now.tv_usec / 1000));
  return std::string(text, size) + fraction;
}

void remember(std::deque<std::string>& tail, const std::string& line) {
  std::string text = visible_part(line);
  if (text.ends_with('\n')) text.pop_back();
  if (text.size() > kTailWidth)
    text = std::string(whole_characters(std::string_view(text).substr(0, kTailWidth))) + " ...";
  tail.push_back(std::move(text));
  if (tail.size() > kTailLines) tail.pop_front();
}

}  // namespace

Result<std::unique_ptr<Output>> Output::create(const OutputOptions& options) {
  std::unique_ptr<Output> out(new Output(options));
  if (!options.directory.empty()) {
    auto files = LogFiles::create(options.directory, static_cast<int>(options.hosts.size()));
    if (!files.ok()) return files.status();
    out->files_ = *std::move(files);
  }
  return out;
}

Output::Output(const OutputOptions& options)
    : options_(options),
      streams_(options.hosts.size() * 2),
      output_(1),
      error_(2),
      shared_(output_.same_as(error_)),
      output_sink_(output_.is_tty()),
      error_sink_(error_.is_tty()) {}

std::string Output::tag(int rank, bool colour) const {
  std::string out = options_.timestamp ? wall_clock() : "";
  if (options_.tag == TagStyle::kNone) return out;
  std::string name = std::to_string(rank);
  if (options_.tag == TagStyle::kHost) name += "@" + options_.hosts[static_cast<std::size_t>(rank)];
  // Six colours that are readable on dark and light ground; neighbours differ.
  constexpr int kColours[] = {36, 33, 35, 32, 34, 31};
  if (!colour) return out + "[" + name + "] ";
  return out + "\x1b[" + std::to_string(kColours[rank % 6]) + "m[" + name + "]\x1b[0m ";
}

void Output::check(const Status& status) {
  if (!status.ok()) say(status.message());
}

void Output::write(const StreamBytes& bytes, TimePoint now) {
  if (bytes.rank < 0 || static_cast<std::size_t>(bytes.rank) * 2 >= streams_.size()) return;
  const std::string_view text(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
  if (files_) check(files_->write(bytes.rank, bytes.stream, text));
  Stream& stream = stream_of(bytes.rank, bytes.stream);
  stream.owed += static_cast<std::uint32_t>(text.size());
  stream.assembler.feed(text, [&](Piece piece) { add_piece(bytes.rank, bytes.stream, std::move(piece), now); });
  const Terminal& terminal = terminal_of(bytes.stream);
  if (terminal.is_tty() && !stream.folded) {
    sink_of(bytes.stream).progress(tag(bytes.rank, options_.colour), stream.assembler.progress());
  }
}

void Output::finish(int rank, TimePoint now) {
  for (int i = 0; i < 2; ++i) {
    stream_of(rank, i).assembler.finish([&](Piece piece) { add_piece(rank, i, std::move(piece), now); });
  }
}

void Output::add_piece(int rank, int index, Piece piece, TimePoint now) {
  Stream& stream = stream_of(rank, index);
  const int id = rank * 2 + index;
  if (piece.begins) remember(stream.tail, piece.text.substr(0, kTailWidth * 4));
  if (files_) merged_sink_.add(id, tag(rank, false), piece, now);
  if (stream.folded && !stream.in_long_line) {
    keep_back(stream, std::move(piece));
    return;
  }
  stream.in_long_line = !piece.ends;
  const bool colour = options_.colour && terminal_of(index).is_tty();
  sink_of(index).add(id, tag(rank, colour), std::move(piece), now);
}

void Output::keep_back(Stream& stream, Piece piece) {
  stream.kept_bytes += piece.text.size();
  stream.kept_back.push_back(std::move(piece));
  while (stream.kept_bytes > kKeptBack && stream.kept_back.size() > 1) {
    stream.kept_bytes -= stream.kept_back.front().text.size();
    stream.kept_back.pop_front();
  }
}

void Output::say(const std::string& text) {
  std::string lines;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines += (start == 0 ? "distrun: " : "  ") + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  const std::string stamp = options_.timestamp ? wall_clock() : "";
  sink_of(1).add(kOwnStream, stamp, {.text = lines}, Clock::now());
  if (files_) merged_sink_.add(kOwnStream, stamp, {.text = lines}, Clock::now());
}

void Output::fold_all_but(int rank) {
  if (!options_.fold) return;
  for (std::size_t i = 0; i * 2 < streams_.size(); ++i) {
    if (static_cast<int>(i) != rank) streams_[i * 2 + 1].folded = true;
  }
}

void Output::unfold(int rank, TimePoint now) {
  Stream& stream = stream_of(rank, 1);
  stream.folded = false;
  const bool colour = options_.colour && terminal_of(1).is_tty();
  for (Piece& piece : stream.kept_back) sink_of(1).add(rank * 2 + 1, tag(rank, colour), std::move(piece), now);
  stream.kept_back.clear();
  stream.kept_bytes = 0;
}

std::vector<std::string> Output::last_lines(int rank) const {
  const auto index = static_cast<std::size_t>(rank) * 2;
  const auto& tail = streams_[index + 1].tail.empty() ? streams_[index].tail : streams_[index + 1].tail;
  return {tail.begin(), tail.end()};
}

void Output::watch(Poller& poller) {
  if (files_ && merged_sink_.size() > 0) {
    const std::string text = std::exchange(merged_sink_.text(), {});
    check(files_->write_merged(text));
  }
  output_.watch(poller, output_sink_.text());
  if (!shared_) error_.watch(poller, error_sink_.text());
}

// Training goes on: whoever wants its output most is not helped by its end.
void Output::tell_lost() {
  if (output_.lost() == 0 || std::exchange(told_lost_, true)) return;
  say("standard output cannot be written: " + errno_status("", output_.lost()).message().substr(2) +
      "; the job goes on, but output is lost (--output-dir keeps it in files)");
}

void Output::tick(TimePoint now) {
  tell_lost();
  for (LineSink* sink : {&output_sink_, &error_sink_, &merged_sink_}) sink->tick(now);
}

std::optional<TimePoint> Output::deadline() const {
  return earlier(earlier(output_sink_.deadline(), error_sink_.deadline()), merged_sink_.deadline());
}

std::vector<Credit> Output::take_credits() {
  std::vector<Credit> out;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto id = static_cast<int>(i);
    LineSink& sink = sink_of(id % 2);
    if (streams_[i].owed == 0 || sink.size() > kHighWater || sink.holds(id) || merged_sink_.holds(id)) continue;
    out.push_back({.rank = static_cast<std::int32_t>(i / 2),
                   .stream = static_cast<std::uint8_t>(i % 2),
                   .bytes = std::exchange(streams_[i].owed, 0)});
  }
  return out;
}

bool Output::behind() const { return output_sink_.size() > kHighWater || error_sink_.size() > kHighWater; }

bool Output::reader_gone() const { return output_.closed(); }

void Output::flush_all() {
  const TimePoint now = Clock::now();
  for (std::size_t i = 0; i * 2 < streams_.size(); ++i) finish(static_cast<int>(i), now);
  if (files_) check(files_->write_merged(std::exchange(merged_sink_.text(), {})));
  output_.flush_all(output_sink_.text());
  tell_lost();
  if (!shared_) error_.flush_all(error_sink_.text());
}

}  // namespace distrun::launcher
