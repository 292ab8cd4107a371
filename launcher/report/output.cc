#include "launcher/report/output.h"

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "runtime/net/bytes/wire.h"

namespace distrun::launcher {
namespace {

constexpr int kFiles = 2;  // as a destination
// How often a log shows the state of a progress bar.
constexpr Duration kBar = std::chrono::seconds(10);
// After this time a partial line is shown as it is: on a terminal (prompts), and in a log (dots of a test runner).
constexpr Duration kPrompt = std::chrono::milliseconds(500);
constexpr Duration kPause = std::chrono::seconds(1);

std::string distrun_lines(const std::string& text) {
  std::string lines;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines += (start == 0 ? "distrun: " : "  ") + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  return lines;
}

std::size_t stream_id(int rank, int stream) { return static_cast<std::size_t>(rank * 2 + stream); }

}  // namespace

Result<std::unique_ptr<Output>> Output::create(const OutputConfig& config) {
  auto logs = JobLogs::create(config.options.directory, config.hosts);
  if (!logs.ok()) return logs.status();
  std::unique_ptr<Output> out(new Output(config, *std::move(logs)));
  DISTRUN_RETURN_IF_ERROR(out->screen_.open());
  return out;
}

Output::Output(const OutputConfig& config, JobLogs logs)
    : config_(config),
      tags_(config.options, config.hosts),
      streams_(config.hosts.size() * 2),
      clocks_(config.hosts),
      last_lines_(config.hosts.size()),
      errors_(config.hosts.size(), config.options.all_errors),
      unfinished_(config.hosts.size() * 2),
      screen_(config.draws),
      screen_lines_(tags_, screen_, config.options.fold, config.colour, config.hosts.size()),
      logs_(std::move(logs)) {
  watches_.emplace(0, DestinationWatch(screen_.name(0), "the job ends"));
  if (!screen_.shared()) {
    watches_.emplace(1, DestinationWatch(screen_.name(1), "the job goes on, but what ranks write there is lost"));
  }
  if (logs_.on()) watches_.emplace(kFiles, DestinationWatch(config.options.directory + " (--output-dir)", ""));
  // There are no ranks before the hosts have reported their slots.
  if (const int rank = config.options.input.terminal; rank >= 0 && !config.hosts.empty()) screen_lines_.finished(rank);
}

void Output::write(const StreamBytes& bytes, TimePoint now) {
  if (bytes.rank < 0 || stream_id(bytes.rank, 0) >= streams_.size()) return;
  const std::string_view text = net::as_text(bytes.bytes);
  logs_.write(bytes.rank, bytes.stream, text);
  Stream& stream = streams_[stream_id(bytes.rank, bytes.stream)];
  stream.owed += static_cast<std::uint32_t>(text.size());
  const TimePoint written = clocks_.moment(bytes.rank, bytes.when, now);
  stream.assembler.feed(text,
                        [&](Piece piece) { add_piece(bytes.rank, bytes.stream, std::move(piece), written, now); });
  follow_line(bytes.rank, bytes.stream, now);
  screen_lines_.show_due(now);
  if (bytes.rank == config_.options.input.terminal) return screen_.sink(0).raw(text, now);
  if (screen_.draws(bytes.stream) && stream.assembler.has_bars()) {
    draw(bytes.rank, bytes.stream, stream.assembler.bars());
  }
}

void Output::finish(int rank, TimePoint now) {
  for (int i = 0; i < 2; ++i) {
    streams_[stream_id(rank, i)].assembler.finish([&](Piece piece) { add_piece(rank, i, std::move(piece), now, now); });
    follow_line(rank, i, now);
  }
  screen_lines_.show(rank, 1, errors_.finish(rank, now), now);
  screen_lines_.finished(rank);
  screen_lines_.show_due(now);
}

void Output::add_piece(int rank, int index, Piece piece, TimePoint written, TimePoint now) {
  last_lines_.add(rank, index, piece, written);
  log(rank, index, piece, written, now);
  if (rank == config_.options.input.terminal) return screen_lines_.seen(rank, piece);
  if (index == 0) return screen_lines_.show(rank, index, std::move(piece), now);
  const bool first = !screen_lines_.folds(index);
  screen_lines_.show(rank, index, errors_.pass(rank, std::move(piece), first, now), now);
}

void Output::log(int rank, int index, const Piece& piece, TimePoint written, TimePoint now) {
  if (!logs_.on()) return;
  const std::string tag = tags_.stamp(now - written) + tags_.tag({rank}, false);
  logs_.add(written, {.stream = rank * 2 + index, .tag = tag, .piece = piece});
}

// An unfinished line may stay so for hours. On a terminal bars are drawn at once, and prompts after a moment. In a log,
// bars become a line from time to time, and a line that pauses is shown without its end. If lines of others have broken
// it already, the next part waits as long as a bar, so that it does not become many lines.
void Output::follow_line(int rank, int index, TimePoint now) {
  const LineAssembler& assembler = streams_[stream_id(rank, index)].assembler;
  const bool draws = screen_.draws(index);
  const bool pauses = assembler.pauses() && !(draws && assembler.in_line());
  const bool bars = !draws && assembler.bars_moved();
  const bool broken = assembler.in_line() && !screen_.sink(index).in_line_of(rank * 2 + index);
  const Duration delay = draws ? kPrompt : bars || broken ? kBar : kPause;
  const bool has_terminal = rank == config_.options.input.terminal;
  unfinished_.follow(stream_id(rank, index), !has_terminal && (pauses || bars), delay, now);
}

void Output::show_unfinished(TimePoint now) {
  for (const std::size_t id : unfinished_.due(now)) {
    const int rank = static_cast<int>(id / 2);
    const int index = static_cast<int>(id % 2);
    screen_.draws(index) ? draw_again(rank, index, now) : show_paused(rank, index, now);
  }
}

// Draws a prompt once, since the user may have typed half of an answer after it. Draws it again if another line has
// replaced it.
void Output::draw_again(int rank, int index, TimePoint now) {
  const std::size_t id = stream_id(rank, index);
  const std::string text = streams_[id].assembler.unfinished();
  if (!screen_.sink(index).drawn() || text.size() != unfinished_.shown(id)) draw(rank, index, {text});
  unfinished_.shown(id) = text.size();
  unfinished_.again(id, now + kPrompt);
}

// A bar or a prompt must not appear before the earlier lines of its rank.
void Output::draw(int rank, int index, std::vector<std::string> lines) {
  if ((index == 1 && errors_.silences(rank)) || screen_lines_.holds(rank)) return;
  const std::size_t most = screen_.most_drawn(index);
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  screen_.sink(index).draw(tags_.tag({rank}, config_.colour), lines);
}

void Output::show_paused(int rank, int index, TimePoint now) {
  LineAssembler& assembler = streams_[stream_id(rank, index)].assembler;
  if (auto part = assembler.take_paused()) add_piece(rank, index, *std::move(part), now, now);
  if (index == 1 && errors_.silences(rank)) return;
  for (const std::string& bar : assembler.take_bars()) {
    const Piece piece{.text = bar + '\n'};
    log(rank, index, piece, now, now);
    screen_lines_.show(rank, index, piece, now);
  }
}

void Output::print(const std::string& text) { print_to(1, text, Clock::now()); }

void Output::print_to(int stream, const std::string& text, TimePoint now) {
  screen_lines_.show_all(now);
  if (text.empty()) return;
  const std::string stamp = tags_.stamp(Duration::zero());
  const std::string lines = distrun_lines(text);
  screen_lines_.print(stream, stamp, lines, now);
  logs_.add(now, {.stream = ScreenLines::kOwnStream, .tag = stamp, .piece = {.text = lines}});
}

void Output::show_errors(std::vector<ErrorLines::Of> lines, TimePoint now) {
  for (ErrorLines::Of& one : lines) screen_lines_.show(one.rank, 1, std::move(one.pieces), now);
}

void Output::watch(Poller& poller) {
  screen_.watch(poller);
  logs_.watch(poller);
}

std::size_t Output::largest_backlog() const {
  return std::max({state(0).backlog, state(1).backlog, state(kFiles).backlog});
}

void Output::print_for(int place, const std::string& text, TimePoint now) {
  print_to(screen_.shared() || place == 1 ? 0 : 1, text, now);
}

void Output::tick(TimePoint now) {
  // Comes first, because the steps below use its result. If a batch ends later, its descriptor stays readable and wakes
  // the loop.
  screen_.look();
  logs_.look();
  if (phase_.finished) {
    screen_.finish();
    logs_.finish();
  }
  for (auto& [place, watch] : watches_) {
    for (const std::string& text : watch.faults(state(place), phase_)) print_for(place, text, now);
  }
  show_unfinished(now);
  show_errors(errors_.due(now), now);
  screen_lines_.show_due(now);
  screen_.tick(now);
  logs_.tick(now);
  // Comes last. The text just added may be so much that agents get no credit, and then only this deadline wakes the
  // loop.
  for (auto& [place, watch] : watches_) {
    const DestinationWatch::SlowText slow = watch.slow(state(place), phase_, now);
    if (slow.give_up) place == kFiles ? logs_.give_up() : screen_.give_up(place);
    if (!slow.text.empty()) print_for(place, slow.text, now);
  }
}

std::optional<TimePoint> Output::deadline() const {
  auto next =
      earlier(earlier(screen_.deadline(), logs_.deadline()), earlier(screen_lines_.deadline(), unfinished_.deadline()));
  next = earlier(next, errors_.deadline());
  for (const auto& [place, watch] : watches_) next = earlier(next, watch.deadline(phase_));
  return next;
}

std::vector<Credit> Output::take_credits() {
  std::vector<Credit> out;
  constexpr std::size_t kHighWater = DestinationWatch::kHighWater;
  if (state(kFiles).backlog > kHighWater) return out;
  const std::array<bool, 2> much = {state(0).backlog > kHighWater, state(1).backlog > kHighWater};
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].owed == 0) continue;
    const auto id = static_cast<int>(i);
    if (much.at(i % 2) || screen_.sink(id % 2).holds(id) || logs_.holds(id)) continue;
    out.push_back({.rank = static_cast<std::int32_t>(i / 2),
                   .stream = static_cast<std::uint8_t>(i % 2),
                   .bytes = std::exchange(streams_[i].owed, 0)});
  }
  return out;
}

void Output::finish_all() {
  phase_.finished = true;
  const TimePoint now = Clock::now();
  for (std::size_t i = 0; i * 2 < streams_.size(); ++i) finish(static_cast<int>(i), now);
  show_errors(errors_.due(TimePoint::max()), now);
  screen_lines_.show_all(now);
  logs_.flush(now);
}

void Output::follow(Output& earlier) {
  earlier.finish_all();
  screen_.follow(earlier.screen_);
}

}  // namespace distrun::launcher
