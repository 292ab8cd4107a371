#include "runtime/engine/leader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/engine/liveness.h"

namespace distrun::engine {
namespace {

// If a set has this many batches in flight, its ready tensors wait to be fused with the next ones.
constexpr int kBusyFlights = 2;
// Limits of the bytes queued for one member and for all members together. Above them, nothing more runs. A stopped
// member does not read the log, while sets without it continue, and its queue would take all memory here. The second
// limit exists because there may be very many members.
constexpr std::size_t kMostQueued = std::size_t{64} << 20;
constexpr std::size_t kMostQueuedInAll = std::size_t{1} << 30;

// Whether rank 0 makes this set together with others.
bool makes_set_with_others(const Entry& entry) {
  const auto* make = std::get_if<entry::MakeSet>(&entry);
  return make != nullptr && make->ranks.size() > 1 && make->ranks.front() == 0;
}

}  // namespace

Leader::Leader(CoordinatorOptions options, Links links)
    : world_size_(options.world_size),
      links_(links),
      coordinator_(std::move(options)),
      stopping_(world_size_),
      clocks_(static_cast<std::size_t>(world_size_)) {}

// --- messages ---

// The leader is a member too. It passes its messages to itself, without a connection.
LeaderLink::Effects Leader::submit(Message message) {
  coordinator_.has_read(0, read_);
  return take(0, message);
}

void Leader::queue(int rank, Message message) { links_.outbox.queue(rank, std::move(message)); }

LeaderLink::Effects Leader::take_message(int from, std::uint64_t index, Message& message) {
  if (const auto* abort = std::get_if<message::Abort>(&message))
    return {.failure = abort->why, .report_to_others = true};
  coordinator_.has_read(from, index);
  return take(from, message);
}

LeaderLink::Effects Leader::take(int rank, Message& message) {
  const TimePoint now = Clock::now();
  if (const auto* ready = std::get_if<message::Ready>(&message)) {
    for (const TensorId id : ready->ids) coordinator_.ready(rank, id, now);
  } else if (const auto* submitted = std::get_if<message::Submitted>(&message)) {
    coordinator_.submitted(rank, *submitted, now);
  } else if (auto* called = std::get_if<message::Called>(&message)) {
    coordinator_.called(rank, std::move(called->call), now, called->refused);
  } else if (const auto* made = std::get_if<message::SetMade>(&message)) {
    coordinator_.set_made(rank, made->set, made->result);
  } else if (std::holds_alternative<message::Leaving>(message)) {
    coordinator_.leave(rank);
  } else if (std::holds_alternative<message::Drained>(message)) {
    drained(rank);
    return {.drained = rank};
  } else if (auto* events = std::get_if<message::Events>(&message)) {
    write_events(rank, std::move(events->events));
  } else if (const auto* asked = std::get_if<message::StopAsked>(&message)) {
    return stop_asked(rank, asked->cause);
  } else if (const auto* count = std::get_if<message::StopCount>(&message)) {
    stopping_.counted(rank, count->calls);
    return decide_stop();
  } else if (auto* answer = std::get_if<message::WaitAnswer>(&message)) {
    return {.wait_of = rank, .wait = std::move(*answer)};
  }
  return {};
}

// The rank may end before the log does.
void Leader::drained(int rank) {
  coordinator_.drained(rank);
  if (rank != 0) links_.plane->may_go(rank);
}

LeaderLink::Effects Leader::left(int rank) {
  stopping_.left(rank);
  return decide_stop();
}

// --- the log ---

LeaderLink::Decided Leader::decide(std::span<ProcessSet* const> active) {
  std::vector<int> busy;
  for (const ProcessSet* set : active) {
    if (set->in_flight >= kBusyFlights) busy.push_back(set->id);
  }
  const net::Queued queued = links_.plane == nullptr ? net::Queued() : links_.plane->queued();
  const bool hold = queued.most > kMostQueued || queued.all > kMostQueuedInAll;
  // Only when the whole log is followed, because a timeline entry in it comes first.
  if (log_.empty() && std::exchange(recording_unwritten_, false)) coordinator_.end_timeline();
  Actions actions = coordinator_.act(busy, hold);
  if (actions.empty()) return {};
  for (const std::string& warning : actions.warnings) warn(warning);
  if (!actions.waits.empty() || actions.waits_over) links_.launcher.report_waits(std::move(actions.waits));
  for (Entry& entry : actions.entries) log_.push_back(std::move(entry));
  return {.abort = std::move(actions.abort), .warned = !actions.warnings.empty()};
}

// The others get the entries before anything runs here, so they start no later than this rank. While this rank makes a
// set it sends nothing, and the ranks that make the set with it receive nothing. So all entries up to this one must
// have reached them before it begins. They include the sets that those ranks make before it. Nothing after it may be
// under way.
Entry* Leader::next_entry() {
  if (log_.empty()) return nullptr;
  if (sent_ == 0) send_log();
  if (makes_set_with_others(log_.front()) && links_.plane->pending()) return nullptr;
  current_ = std::move(log_.front());
  log_.pop_front();
  --sent_;
  ++read_;
  return &current_;
}

// Sends the entries up to and including the next set that this rank makes with others.
void Leader::send_log() {
  const auto makes = std::find_if(log_.begin(), log_.end(), makes_set_with_others);
  const auto end = makes == log_.end() ? makes : std::next(makes);
  sent_ = static_cast<std::size_t>(end - log_.begin());
  links_.outbox.append({log_.begin(), end});
  links_.outbox.send();
}

void Leader::tick(TimePoint now) {
  if (coordinator_.next_tick().value_or(TimePoint::max()) <= now) coordinator_.tick(now);
}

void Leader::warn(const std::string& text) const {
  if (links_.log != nullptr) links_.log->warning(text);
}

// --- stopping all ranks at the same call of should_stop() ---

LeaderLink::Effects Leader::stop_asked(int rank, const std::string& cause) {
  if (!stopping_.asked(cause)) return {};
  if (links_.log != nullptr) links_.log->info("rank " + std::to_string(rank) + " asks all ranks to stop");
  queue(-1, message::StopHold{});
  return {.hold_stop = true};
}

LeaderLink::Effects Leader::decide_stop() {
  const auto first = stopping_.take();
  if (!first) return {};
  queue(-1, message::StopAt{.call = *first});
  links_.launcher.report_stop(stopping_.cause());
  return {.stop_at = first};
}

// --- the timeline ---

// Each answer causes the next question, until the offset is known well enough.
void Leader::measure_clock(int rank) {
  clocks_.at(static_cast<std::size_t>(rank)).measure_again();
  ask_clock(rank);
}

void Leader::ask_clock(int rank) { queue(rank, Liveness::clock_question(Clock::now())); }

void Leader::clock_answered(int rank, const message::Pong& pong) {
  auto& clock = clocks_.at(static_cast<std::size_t>(rank));
  if (clock.measured(pong.sent_ns, pong.here_ns, nanoseconds(Clock::now()))) ask_clock(rank);
}

void Leader::start_timeline(TimelineWriterPtr timeline) {
  timeline_ = std::move(timeline);
  for (int rank = 1; rank < world_size_; ++rank) measure_clock(rank);
}

void Leader::stop_timeline() {
  timeline_.reset();
  recording_unwritten_ = false;
}

void Leader::write_events(int rank, std::vector<TimelineEvent> events) {
  if (!timeline_) return;
  const ClockOffset& clock = clocks_.at(static_cast<std::size_t>(rank));
  const Status written = timeline_->write(rank, std::move(events), clock.value());
  if (rank != 0 && clock.outdated(nanoseconds(Clock::now()))) measure_clock(rank);
  if (written.ok()) return;
  // A caller finished this file to replace it by a new one, and the new one did not start. That caller has the error.
  if (written.code() != Errc::kShutDown) warn(written.message() + ". The timeline ends here");
  timeline_.reset();
  recording_unwritten_ = true;
}

}  // namespace distrun::engine
