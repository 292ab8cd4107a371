#include "launcher/report/output.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "runtime/net/bytes/wire.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailWidth = 400;
// What a rank said on standard error so long before its last line, or later, belongs to its end.
constexpr Duration kOfLate = std::chrono::seconds(5);
constexpr std::size_t kKeptBack = 64 * 1024;  // of one stream
// Above this a terminal, or the disk, counts as behind, and agents get no more credit.
constexpr std::size_t kHighWater = 256 * 1024;
constexpr int kOwnStream = -1;
// A line from another host that was written earlier may come so much later.
constexpr Duration kLate = std::chrono::milliseconds(300);
// So often a log shows where a progress bar is.
constexpr Duration kBar = std::chrono::seconds(10);
// What a terminal has seen nothing of for so long is no line that is on its way.
constexpr Duration kPrompt = std::chrono::milliseconds(500);
// A reader or a disk that takes nothing for so long is worth a word.
constexpr Duration kPatience = std::chrono::seconds(5);
// And one that takes nothing for so long is given up, where the user wants an end.
constexpr Duration kLastPatience = std::chrono::seconds(1);
// Of ranks in a tag.
constexpr std::size_t kTagWidth = 40;

// `ago` before now.
std::string wall_clock(Duration ago) {
  const auto then = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::microseconds>(ago);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(then);
  tm local{};
  ::localtime_r(&seconds, &local);
  char text[64];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(then.time_since_epoch()).count() % 1000;
  char fraction[8];
  std::snprintf(fraction, sizeof fraction, ".%03d ", static_cast<int>(milliseconds));
  return std::string(text, size) + fraction;
}

std::string name_of(int stream) { return stream == 0 ? "standard output" : "standard error"; }

std::string lines_of_ours(const std::string& text) {
  std::string lines;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines += (start == 0 ? "distrun: " : "  ") + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  return lines;
}

// "0-15"; of many that are not neighbours the first ones and how many they are.
std::string short_ranges(const std::vector<int>& ranks) {
  std::string out = ranges(ranks);
  if (out.size() <= kTagWidth) return out;
  const std::size_t cut = out.rfind(',', kTagWidth);
  return out.substr(0, cut) + ",... " + counted(ranks.size(), "rank");
}

Duration late_by(const std::vector<std::string>& hosts) {
  const bool one = std::equal(hosts.begin() + (hosts.empty() ? 0 : 1), hosts.end(), hosts.begin());
  return one ? Duration::zero() : kLate;
}

}  // namespace

Result<std::unique_ptr<Output>> Output::create(const OutputConfig& config) {
  std::unique_ptr<Output> out(new Output(config));
  DISTRUN_RETURN_IF_ERROR(out->output_.open());
  if (!out->shared_) DISTRUN_RETURN_IF_ERROR(out->error_.open());
  if (!config.options.directory.empty()) {
    auto files = LogFiles::create(config.options.directory, static_cast<int>(config.hosts.size()));
    if (!files.ok()) return files.status();
    out->files_ = *std::move(files);
  }
  return out;
}

Output::Output(const OutputConfig& config)
    : config_(config),
      streams_(config.hosts.size() * 2),
      output_(1),
      error_(2),
      shared_(output_.same_as(error_)),
      output_sink_(config.draws && output_.is_tty()),
      error_sink_(config.draws && error_.is_tty()),
      fold_(config.hosts.size()),
      merged_order_(late_by(config.hosts)) {
  std::map<std::string, std::size_t> numbers;
  for (const std::string& host : config.hosts) {
    host_of_.push_back(numbers.emplace(host, numbers.size()).first->second);
  }
  clocks_.resize(numbers.size());
  // Before hosts have told their slots there are no ranks yet.
  if (config.options.input.terminal >= 0 && !config.hosts.empty()) fold_.finished(config.options.input.terminal);
}

std::string Output::tag(const std::vector<int>& ranks, bool colour) const {
  if (config_.options.tag == TagStyle::kNone) return {};
  std::string name = short_ranges(ranks);
  const auto host = [this](int rank) { return config_.hosts[static_cast<std::size_t>(rank)]; };
  const bool one_host =
      std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return host(rank) == host(ranks.front()); });
  if (config_.options.tag == TagStyle::kHost && one_host) name += "@" + host(ranks.front());
  // Six colours that are readable on dark and light ground; neighbours differ. What several say is bold.
  constexpr int kColours[] = {36, 33, 35, 32, 34, 31};
  if (!colour) return "[" + name + "] ";
  return "\x1b[" + std::to_string(ranks.size() > 1 ? 1 : kColours[ranks.front() % 6]) + "m[" + name + "]\x1b[0m ";
}

bool Output::folds(int stream) {
  if (config_.options.fold == Folding::kOnTerminal) return terminal_of(stream).is_tty();
  return config_.options.fold == Folding::kAlways;
}

void Output::begin() {
  if (files_) files_->begin();
}

void Output::write(const StreamBytes& bytes, TimePoint now) {
  if (bytes.rank < 0 || static_cast<std::size_t>(bytes.rank) * 2 >= streams_.size()) return;
  const std::string_view text = net::as_text(bytes.bytes);
  if (files_) files_->write(bytes.rank, bytes.stream, std::string(text));
  Stream& stream = stream_of(bytes.rank, bytes.stream);
  stream.owed += static_cast<std::uint32_t>(text.size());
  const TimePoint written = clocks_[host_of_[static_cast<std::size_t>(bytes.rank)]].moment(bytes.when, now);
  stream.assembler.feed(text,
                        [&](Piece piece) { add_piece(bytes.rank, bytes.stream, std::move(piece), written, now); });
  follow_line(bytes.rank, bytes.stream, now);
  show(fold_.take(now), now);
  if (bytes.rank == config_.options.input.terminal) return sink_of(0).raw(text, now);
  if (draws(bytes.stream)) draw(bytes.rank, bytes.stream, stream.assembler.progress());
}

void Output::finish(int rank, TimePoint now) {
  for (int i = 0; i < 2; ++i) {
    stream_of(rank, i).assembler.finish([&](Piece piece) { add_piece(rank, i, std::move(piece), now, now); });
    follow_line(rank, i, now);
  }
  fold_.finished(rank);
  show(fold_.take(now), now);
}

void Output::add_piece(int rank, int index, Piece piece, TimePoint written, TimePoint now) {
  Stream& stream = stream_of(rank, index);
  if (piece.begins) remember(stream.tail, piece.text, written);
  // A terminal ends lines with "\r\n".
  if (rank == config_.options.input.terminal && piece.begins && piece.ends) piece.text = visible_part(piece.text);
  merge(rank, index, piece, written, now);
  if (rank == config_.options.input.terminal) return;
  if (stream.silenced && !stream.in_long_line) {
    keep_back(stream, std::move(piece));
    return;
  }
  stream.in_long_line = !piece.ends;
  show(rank, index, std::move(piece), now);
}

void Output::merge(int rank, int index, const Piece& piece, TimePoint written, TimePoint now) {
  if (!files_) return;
  const std::string stamp = config_.options.timestamp ? wall_clock(now - written) : "";
  merged_order_.add(written, {.stream = rank * 2 + index, .tag = stamp + tag({rank}, false), .piece = piece});
}

// Where the output is no terminal, nothing would be seen of a progress bar until its line ends, perhaps hours later; on
// one nothing of a prompt, which waits for an answer.
void Output::follow_line(int rank, int index, TimePoint now) {
  Stream& stream = stream_of(rank, index);
  const std::string_view text = draws(index) ? stream.assembler.unfinished() : stream.assembler.progress();
  const bool waits = rank != config_.options.input.terminal && !text.empty();
  if (waits == stream.draws_at.has_value()) return;
  const auto id = static_cast<std::size_t>(rank * 2 + index);
  if (waits) {
    unended_.emplace(stream.draws_at.emplace(now + (draws(index) ? kPrompt : kBar)), id);
  } else {
    unended_.erase({*stream.draws_at, id});
    stream.draws_at.reset();
    stream.drawn = 0;
  }
}

void Output::show_unended(TimePoint now) {
  while (!unended_.empty() && unended_.begin()->first <= now) {
    const std::size_t id = unended_.begin()->second;
    unended_.erase(unended_.begin());
    const int rank = static_cast<int>(id / 2);
    const int index = static_cast<int>(id % 2);
    Stream& stream = streams_[id];
    stream.draws_at.reset();
    if (!draws(index)) {
      show_bar(rank, index, now);
      continue;
    }
    // Once is enough, since an answer may be half typed behind it, unless another line has taken its place.
    const std::string_view text = stream.assembler.unfinished();
    if (!sink_of(index).drawn() || text.size() != stream.drawn) draw(rank, index, text);
    stream.drawn = text.size();
    unended_.emplace(stream.draws_at.emplace(now + kPrompt), id);
  }
}

// A bar, or a prompt, must not overtake the lines before it.
void Output::draw(int rank, int index, std::string_view text) {
  if (stream_of(rank, index).silenced || fold_.holds(rank)) return;
  sink_of(index).progress(tag({rank}, config_.colour), text);
}

void Output::show_bar(int rank, int index, TimePoint now) {
  Stream& stream = stream_of(rank, index);
  if (stream.silenced) return;
  const Piece piece{.text = stream.assembler.take_progress() + '\n'};
  if (piece.text.find_first_not_of(" \n") == std::string::npos) return;  // a bar that was wiped out at its end
  merge(rank, index, piece, now, now);
  show(rank, index, piece, now);
}

void Output::show(int rank, int index, Piece piece, TimePoint now) {
  const std::string stamp = config_.options.timestamp ? wall_clock(Duration::zero()) : "";
  if (folds(index) && piece.begins && piece.ends) {
    return fold_.add({.stream = index, .stamp = stamp, .text = std::move(piece.text), .ranks = {rank}, .since = now});
  }
  show(fold_.take_up_to(rank, now), now);
  const bool colour = config_.colour && terminal_of(index).is_tty();
  sink_of(index).add(rank * 2 + index, stamp + tag({rank}, colour), std::move(piece), now);
}

void Output::show(std::vector<Fold::Line> lines, TimePoint now) {
  for (Fold::Line& line : lines) {
    const bool colour = config_.colour && terminal_of(line.stream).is_tty();
    sink_of(line.stream)
        .add(line.ranks.front() * 2 + line.stream, line.stamp + tag(line.ranks, colour), {.text = std::move(line.text)},
             now);
  }
}

void Output::keep_back(Stream& stream, Piece piece) {
  stream.kept_bytes += piece.text.size();
  stream.kept_back.push_back(std::move(piece));
  while (stream.kept_bytes > kKeptBack && stream.kept_back.size() > 1) {
    stream.kept_bytes -= stream.kept_back.front().text.size();
    stream.kept_back.pop_front();
  }
}

void Output::say(const std::string& text) { say_to(1, text, Clock::now()); }

void Output::say_to(int stream, const std::string& text, TimePoint now) {
  show(fold_.take_all(), now);
  const std::string stamp = config_.options.timestamp ? wall_clock(Duration::zero()) : "";
  const std::string lines = lines_of_ours(text);
  sink_of(stream).add(kOwnStream, stamp, {.text = lines}, now);
  if (files_) merged_order_.add(now, {.stream = kOwnStream, .tag = stamp, .piece = {.text = lines}});
}

void Output::keep_back_all_but(int rank) {
  if (config_.options.all_errors) return;
  for (std::size_t i = 0; i * 2 < streams_.size(); ++i) {
    if (static_cast<int>(i) != rank) streams_[i * 2 + 1].silenced = true;
  }
}

void Output::show_kept_back(int rank, TimePoint now) {
  Stream& stream = stream_of(rank, 1);
  stream.silenced = false;
  for (Piece& piece : stream.kept_back) show(rank, 1, std::move(piece), now);
  stream.kept_back.clear();
  stream.kept_bytes = 0;
}

void Output::remember(std::deque<TailLine>& tail, std::string_view line, TimePoint written) {
  const bool bar = line.substr(0, line.find_last_not_of("\r\n") + 1).find('\r') != std::string_view::npos;
  std::string text = visible_part(line);
  if (text.ends_with('\n')) text.pop_back();
  if (text.size() > kTailWidth)
    text = std::string(whole_characters(std::string_view(text).substr(0, kTailWidth))) + " ...";
  tail.push_back({.written = written, .text = std::move(text), .bar = bar});
  if (tail.size() > kTailLines) tail.pop_front();
}

std::vector<std::string> Output::last_lines(int rank) const {
  const std::deque<TailLine>& output = tail_of(rank, 0);
  const std::deque<TailLine>& error = tail_of(rank, 1);
  auto out = output.begin();
  auto err = error.begin();
  const TimePoint late = output.empty() ? TimePoint::min() : output.back().written - kOfLate;
  const auto of_late = std::find_if(err, error.end(), [&](const TailLine& line) { return line.written >= late; });
  // The oldest ones go, but no end of standard error for standard output.
  while ((output.end() - out) + (error.end() - err) > std::ptrdiff_t{kTailLines}) {
    if (err < of_late && err->written < out->written) {
      ++err;
    } else {
      ++out;
    }
  }
  std::vector<std::string> lines;
  while (out != output.end() || err != error.end()) {
    const bool error_next = out == output.end() || (err != error.end() && err->written < out->written);
    lines.push_back((error_next ? err++ : out++)->text);
  }
  return lines;
}

std::string Output::last_word(int rank) const {
  const std::deque<TailLine>& output = tail_of(rank, 0);
  const std::deque<TailLine>& error = tail_of(rank, 1);
  const bool of_late = !error.empty() && (output.empty() || error.back().written + kOfLate >= output.back().written);
  const std::deque<TailLine>& tail = of_late ? error : output;
  if (tail.empty()) return "";
  // A progress bar is drawn a last time when its program ends, behind the reason for that end.
  const auto said =
      std::find_if(tail.rbegin(), tail.rend(), [](const TailLine& line) { return !line.bar && !line.text.empty(); });
  const bool just_before = said != tail.rend() && said->written + kOfLate >= tail.back().written;
  return just_before ? said->text : tail.back().text;
}

void Output::write_merged(std::vector<TimeOrder::Line> lines, TimePoint now) {
  for (TimeOrder::Line& line : lines) merged_sink_.add(line.stream, line.tag, std::move(line.piece), now);
  if (merged_sink_.size() == 0) return;
  files_->write_merged(std::exchange(merged_sink_.text(), {}));
}

void Output::watch(Poller& poller) {
  output_.watch(poller, output_sink_.text());
  if (!shared_) error_.watch(poller, error_sink_.text());
  if (files_) files_->watch(poller);
}

std::size_t Output::backlog(int place) const {
  if (place == kFiles) return files_ ? files_->backlog() : 0;
  if (place == 1) return shared_ ? 0 : error_sink_.size() + error_.in_hand();
  return output_sink_.size() + output_.in_hand();
}

std::size_t Output::taken(int place) const {
  if (place == kFiles) return files_ ? files_->taken() : 0;
  return place == 1 ? error_.taken() : output_.taken();
}

bool Output::closed(int place) const {
  if (place == kFiles) return !files_ || files_->given_up();
  return place == 1 ? shared_ || error_.closed() : output_.closed();
}

void Output::tell(int place, const std::string& text, TimePoint now) {
  say_to(shared_ || place == 1 ? 0 : 1, text, now);
}

// Training goes on: whoever wants its output most is not helped by its end.
void Output::tell_lost(int stream, TimePoint now) {
  const Terminal& terminal = terminal_of(stream);
  if (terminal.lost() == 0 || std::exchange(told_of(stream).lost, true)) return;
  tell(stream,
       name_of(stream) + " cannot be written: " + errno_status("", terminal.lost()).message().substr(2) +
           "; the job goes on, but output is lost (--output-dir keeps it in files)",
       now);
}

void Output::tell_gone(int stream, TimePoint now) {
  if (finished_ || !terminal_of(stream).closed() || std::exchange(told_of(stream).gone, true)) return;
  const char* const then = stream == 0 ? "; the job ends" : "; the job goes on, but what ranks write there is lost";
  tell(stream, "the reader of " + name_of(stream) + " has gone" + then + " (--output-dir keeps output in files)", now);
}

void Output::tell_log_fault(TimePoint now) {
  const Status fault = files_->fault();
  if (fault.ok() || std::exchange(told_of(kFiles).lost, true)) return;
  tell(kFiles, fault.message(), now);
}

std::string Output::name_of_place(int place) const {
  if (place == kFiles) return config_.options.directory + " (--output-dir)";
  return name_of(place) + (is_file(place) ? " (a file)" : "");
}

bool Output::is_file(int place) const {
  return place == kFiles || (place == 1 && !shared_ ? error_ : output_).is_file();
}

// A reader or a disk that is slow or stopped makes ranks wait in their next write, which looks like a hang.
void Output::tell_stuck(int place, TimePoint now) {
  Told& told = told_of(place);
  if (closed(place)) return told.since.reset();
  // When ranks have ended nothing shows but that the launcher does not; of a reader that is known who it is.
  const bool any = hurried_ || (finished_ && is_file(place));
  const bool much = any ? backlog(place) != 0 : backlog(place) > kHighWater;
  const bool took = std::exchange(told.taken, taken(place)) != told.taken;
  if (!much || took) {
    if (std::exchange(told.stuck, false)) {
      const std::string again = is_file(place) ? " takes text again" : " is read again";
      tell(place, name_of_place(place) + again + (finished_ ? "" : "; ranks go on"), now);
    }
    // From this look on, also when the reader took some just now: agents have no credit, so nothing else may wake us.
    told.since = much ? std::optional(now) : std::nullopt;
    return;
  }
  if (!told.since) told.since = now;
  if (now < *told.since + patience()) return;
  if (hurried_) return give_up(place, now);
  if (!std::exchange(told.stuck, true)) tell(place, stuck_text(place), now);
}

std::string Output::stuck_text(int place) const {
  const std::string name = name_of_place(place);
  const std::string seconds = " for " + seconds_text(std::chrono::duration<double>(kPatience).count()) + " s";
  if (!is_file(place)) return "nobody has read " + name + seconds + "; ranks that write there wait until somebody does";
  return name + " has taken nothing" + seconds + "; is its disk reachable? " +
         (finished_ ? "Ranks have ended; distrun waits for it, or for Ctrl-C" : "Ranks that write wait until it does");
}

void Output::give_up(int place, TimePoint now) {
  place == kFiles ? files_->give_up() : terminal_of(place).give_up();
  told_of(place) = {.lost = true, .gone = true};
  const std::string name = name_of_place(place);
  tell(place,
       (is_file(place) ? name + " takes nothing" : "nobody reads " + name) +
           "; what was still to be written there is lost",
       now);
}

Duration Output::patience() const { return hurried_ ? kLastPatience : kPatience; }

void Output::tick(TimePoint now) {
  // Before what is judged by it; an end that comes later leaves the descriptor readable, and the loop comes again.
  output_.look();
  error_.look();
  if (files_) files_->look();
  if (finished_) finish_files();
  for (int i = 0; i < (shared_ ? 1 : 2); ++i) {
    tell_lost(i, now);
    tell_gone(i, now);
  }
  if (files_) tell_log_fault(now);
  show_unended(now);
  show(fold_.take(now), now);
  for (LineSink* sink : {&output_sink_, &error_sink_, &merged_sink_}) sink->tick(now);
  if (files_) write_merged(merged_order_.take(now), now);
  // Last: with what has just been added there may be so much that agents get no credit, and nothing else wakes us then.
  for (int i = 0; i < (shared_ ? 1 : 2); ++i) tell_stuck(i, now);
  if (files_) tell_stuck(kFiles, now);
}

void Output::finish_files() {
  if (output_sink_.size() == 0) output_.finish();
  if (error_sink_.size() == 0) error_.finish();
  if (files_) files_->finish();
}

std::optional<TimePoint> Output::deadline() const {
  auto next = earlier(earlier(output_sink_.deadline(), error_sink_.deadline()), merged_sink_.deadline());
  next = earlier(earlier(next, fold_.deadline()), merged_order_.deadline());
  if (!unended_.empty()) next = earlier(next, unended_.begin()->first);
  for (const Told& told : told_) {
    if (told.since && (hurried_ || !told.stuck)) next = earlier(next, *told.since + patience());
  }
  return next;
}

std::vector<Credit> Output::take_credits() {
  std::vector<Credit> out;
  if (backlog(kFiles) > kHighWater) return out;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].owed == 0) continue;
    const auto id = static_cast<int>(i);
    const LineSink& sink = sink_of(id % 2);
    const bool much = backlog(shared_ ? 0 : id % 2) > kHighWater;
    if (much || sink.holds(id) || merged_sink_.holds(id)) continue;
    out.push_back({.rank = static_cast<std::int32_t>(i / 2),
                   .stream = static_cast<std::uint8_t>(i % 2),
                   .bytes = std::exchange(streams_[i].owed, 0)});
  }
  return out;
}

bool Output::behind() const { return std::max({backlog(0), backlog(1), backlog(kFiles)}) > kHighWater; }

bool Output::reader_gone() const { return output_.closed(); }

void Output::finish_all() {
  finished_ = true;
  const TimePoint now = Clock::now();
  for (std::size_t i = 0; i * 2 < streams_.size(); ++i) finish(static_cast<int>(i), now);
  show(fold_.take_all(), now);
  if (files_) write_merged(merged_order_.take_all(), now);
}

void Output::follow(Output& earlier) {
  earlier.finish_all();
  output_sink_.text() = std::move(earlier.output_sink_.text());
  error_sink_.text() = std::move(earlier.error_sink_.text());
  // With what a file's thread has in hand, which comes before all else.
  output_ = std::move(earlier.output_);
  error_ = std::move(earlier.error_);
}

}  // namespace distrun::launcher
