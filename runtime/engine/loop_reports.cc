// The loop's part that watches and reports: timers, stalls, the watchdog, the timeline.
#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/engine/loop.h"

namespace distrun::engine {
namespace {

// What a ping is for, in its number.
constexpr std::uint64_t kAlive = 0;
constexpr std::uint64_t kClock = 1;
constexpr std::uint64_t kOverdue = 2;  // as kAlive; something at the asking side is past stall_shutdown_time
constexpr std::uint64_t kPatient = 3;  // the same, but it only waits
constexpr std::uint64_t kTold = 4;     // of a pong: the leader answers, and warns of what runs for too long itself

// While there are timers the loop wakes so often. So if it has not seen the clock for much longer, it was kept from it.
constexpr Duration kHeartbeat = std::chrono::seconds(1);
constexpr Duration kSuspended = std::chrono::seconds(3);

}  // namespace

// --- timers: there are none while nothing is in flight ---

TimePoint EngineLoop::next_timer() const {
  TimePoint next = TimePoint::max();
  if (!failed_.ok() || log_ended_) return next;
  const auto consider = [&next](const std::optional<TimePoint>& timer) {
    if (timer) next = std::min(next, *timer);
  };
  if (coordinator_) consider(coordinator_->next_tick());
  consider(detector_.deadline());
  consider(watchdog_.next(oldest_work()));
  consider(recorder_.due());
  return next == TimePoint::max() ? next : std::min(next, seen_ + kHeartbeat);
}

// A stop of the process (a shell's Ctrl-Z, a batch system's suspend) shows in nothing but the clock, which runs on.
void EngineLoop::see_clock(TimePoint now) {
  const Suspension gap{.from = std::exchange(seen_, now), .until = now};
  if (gap.until - gap.from < kSuspended) return;
  if (coordinator_) coordinator_->suspended(gap);
  watchdog_.suspended(gap);
}

void EngineLoop::run_timers(TimePoint now) {
  see_clock(now);
  if (!failed_.ok() || log_ended_) return;
  if (coordinator_ && coordinator_->next_tick().value_or(TimePoint::max()) <= now) coordinator_->tick(now);
  const Watchdog::Actions actions = watchdog_.check(oldest_work(), now);
  for (const int rank : actions.ping) {
    const std::uint64_t purpose = !actions.overdue ? kAlive : actions.patient ? kPatient : kOverdue;
    say(rank, message::Ping{.number = purpose, .sent_ns = nanoseconds(now)});
  }
  for (const std::string& warning : actions.warnings) warn(warning);
  if (!actions.abort.ok()) {
    tell_launcher(actions.abort);
    fail(actions.abort, true);
  }
  if (recorder_.due().value_or(TimePoint::max()) <= now) ship_events();
}

const EngineLoop::CallInFlight* EngineLoop::oldest_call() const {
  const CallInFlight* oldest = calls_.empty() ? nullptr : &calls_.front();
  for (const CallInFlight& one : unordered_) {
    if (one.call.kind == Call::Kind::kRemoveSet) continue;  // nobody waits for it
    if (oldest == nullptr || one.since < oldest->since) oldest = &one;
  }
  return oldest;
}

std::optional<OldestWork> EngineLoop::oldest_work() const {
  const auto name = [](const Tensor& tensor) {
    return std::string(name_of(tensor.signature().kind)) + " '" + tensor.submission().name + "'";
  };
  TimePoint since;
  if (const Tensor* running = executor_.oldest(since)) {
    const bool on_gpu = running->signature().device == DeviceType::kCuda;
    const ProcessSet* set = sets_.find(running->submission().process_set);
    const bool with_leader = set == nullptr || set->index_of(0) >= 0;
    return OldestWork{
        .what = name(*running), .since = since, .running = true, .on_gpu = on_gpu, .with_leader = with_leader};
  }
  // Engines agree on it without their programs, so it takes long only if one does not answer.
  if (stopping_since_) return OldestWork{.what = "should_stop()", .since = *stopping_since_, .running = true};
  const TensorPtr waiting = member_.oldest();
  const CallInFlight* call = oldest_call();
  if (call != nullptr && (!waiting || call->since < waiting->submitted_at())) {
    return OldestWork{.what = describe(call->call), .since = call->since, .running = call->running};
  }
  if (!waiting && left_at_) return OldestWork{.what = "shutdown", .since = *left_at_};
  if (!waiting) return std::nullopt;
  return OldestWork{.what = name(*waiting), .since = waiting->submitted_at()};
}

void EngineLoop::warn(const std::string& text) {
  if (options_.log != nullptr) options_.log->warning(text);
}

// --- who is there ---

void EngineLoop::say(int rank, Message message) {
  if (leader_) return outbox_.say(rank, std::move(message));
  outbox_.to_leader().push_back(std::move(message));
}

void EngineLoop::answer(int from, const message::Ping& ping) {
  const TimePoint now = Clock::now();
  const bool tells = leader_ && ping.number != kClock && watchdog_.tells(oldest_work(), now);
  const std::uint64_t number = tells ? kTold : ping.number;
  say(from, message::Pong{.number = number, .sent_ns = ping.sent_ns, .here_ns = nanoseconds(now)});
  if (!leader_ || ping.number == kClock) return;
  using Asked = Watchdog::Asked;
  watchdog_.asked(now, ping.number == kOverdue   ? Asked::kOverdue
                       : ping.number == kPatient ? Asked::kPatient
                                                 : Asked::kAlive);
}

void EngineLoop::hear_answer(int from, const message::Pong& pong) {
  if (!leader_) detector_.forgive(from);
  if (pong.number == kTold) watchdog_.told();
  if (pong.number != kClock) return watchdog_.answered(from);
  if (!leader_) return;
  auto& clock = clocks_.at(static_cast<std::size_t>(from));
  if (clock.measured(pong.sent_ns, pong.here_ns, nanoseconds(Clock::now()))) ask_clock(from);
}

// --- the timeline ---

// Each answer brings the next question, until the offset is known well enough.
void EngineLoop::measure_clock(int rank) {
  clocks_.at(static_cast<std::size_t>(rank)).measure_again();
  ask_clock(rank);
}

void EngineLoop::ask_clock(int rank) {
  say(rank, message::Ping{.number = kClock, .sent_ns = nanoseconds(Clock::now())});
}

void EngineLoop::start_timeline() {
  executor_.observe(&recorder_);
  if (!leader_) return;
  timeline_ = calls_.front().timeline;
  for (int rank = 1; rank < options_.world.size; ++rank) measure_clock(rank);
}

// What the others have recorded since they made the call belongs to no file.
void EngineLoop::stop_timeline() {
  if (leader_) ship_events();
  executor_.observe(nullptr);
  recorder_ = {};
  timeline_.reset();
  recording_in_vain_ = false;
}

void EngineLoop::ship_events() {
  while (!recorder_.empty()) {
    std::vector<TimelineEvent> events = recorder_.take();
    if (leader_) {
      write_events(0, std::move(events));
    } else {
      say(0, message::Events{.events = std::move(events)});
    }
  }
}

void EngineLoop::write_events(int rank, std::vector<TimelineEvent> events) {
  if (!timeline_) return;
  const ClockOffset& clock = clocks_.at(static_cast<std::size_t>(rank));
  const Status written = timeline_->write(rank, std::move(events), clock.value());
  if (rank != 0 && clock.outdated(nanoseconds(Clock::now()))) measure_clock(rank);
  if (written.ok()) return;
  // Finished, for the next one to have its place, which then did not come: its caller knows.
  if (written.code() != Errc::kShutDown) warn(written.message() + "; the timeline ends here");
  timeline_.reset();
  recording_in_vain_ = true;
}

}  // namespace distrun::engine
