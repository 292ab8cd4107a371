#include "runtime/engine/loop.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <utility>

namespace distrun::engine {
namespace {

// A blocked caller has nothing better to do than to look again, as long as that pays: the budget is halved when a spin
// ends in a sleep all the same (peers that compute, or wait for a core) and doubled when it does not.
constexpr Duration kMostSpin = std::chrono::microseconds(100);
constexpr Duration kLeastSpin = std::chrono::microseconds(3);
// The engine's thread shares its core with the program.
constexpr Duration kEngineSpin = std::chrono::microseconds(10);
// Where ranks outnumber cores, a spin keeps the awaited rank from running; giving up the core lets it run and costs
// less than a sleep and a wake. At least so often, then as long as the budget allows.
constexpr int kLeastYields = 8;
// While spinning, the clock is read and the descriptors are asked every so many looks.
constexpr int kLooksPerCheck = 64;
// A loop that never blocks because there is always something to do still looks around so often.
constexpr std::uint32_t kTurnsPerLook = 256;
// And so often sees that it still runs.
constexpr std::uint32_t kTurnsPerClock = 16;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

bool is_of_timeline(const Call& call) {
  return call.kind == Call::Kind::kStartTimeline || call.kind == Call::Kind::kStopTimeline;
}

CoordinatorOptions coordinator_options(const EngineOptions& options) {
  return {.world_size = options.world.size,
          .hosts = options.hosts,
          .fusion_threshold = options.settings.fusion_threshold,
          .cache_capacity = options.settings.cache_capacity,
          .stall_warning = duration_of(options.settings.stall_warning_time),
          .stall_shutdown = duration_of(options.settings.stall_shutdown_time),
          .next_set = options.next_process_set};
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, Shared shared)
    : options_(options),
      shared_(shared),
      leader_(options.world.rank == 0),
      member_(options.world.gpus.empty() ? 0 : options.world.gpus.front()),
      sets_(options.world.rank),
      executor_(sets_, options.settings.huge_pages),
      outbox_(options.control_plane),
      stopping_(leader_ ? options.world.size : 0),
      detector_(options.hosts),
      watchdog_({.rank = options.world.rank,
                 .hosts = options.hosts,
                 .warning = duration_of(options.settings.stall_warning_time),
                 .shutdown = duration_of(options.settings.stall_shutdown_time)}),
      clocks_(leader_ ? options.hosts.size() : 0),
      spin_budget_(kMostSpin) {
  if (leader_) coordinator_.emplace(coordinator_options(options));
}

// --- one turn ---

bool EngineLoop::turn() {
  bool moved = false;
  if (shared_.requests.has_new() || shared_.table.has_new()) {
    take_local();
    moved = true;
  }
  moved = receive() || moved;
  if (leader_) moved = decide() || moved;
  moved = executor_.progress(done_, everywhere_) || moved;
  moved = send() || moved;
  if (!done_.empty()) {
    complete_done();
    moved = true;
  }
  if (moved) return true;
  const bool changed = check_health();
  everywhere_ = false;
  return changed || end_if_done() || !outbox_.empty();  // nobody sleeps on what was found out now
}

void EngineLoop::take_local() {
  // Requests first: whoever leaves has closed the table before, so what is taken after them is all that it submitted.
  std::vector<Request> requests = shared_.requests.take();
  shared_.table.take_new(fresh_);
  std::vector<Message> messages;
  if (failed_.ok()) submit_fresh(messages);
  fresh_.clear();
  for (Request& request : requests) {
    if (request.kind == Request::Kind::kAbort) {
      fail(request.why, true);
    } else if (request.kind == Request::Kind::kLeave) {
      ship_events();
      left_at_ = Clock::now();
      messages.emplace_back(message::Leaving{});
    } else if (request.kind == Request::Kind::kStop) {
      ask_to_stop(request.cause);
    } else if (request.kind == Request::Kind::kGo) {
      going_.push_back(std::move(request.ticket));
    } else if (!failed_.ok()) {
      request.ticket->finish(failed_, -1);
      shared_.token.news().change_and_wake();
    } else {
      take_call_of(request, messages);
    }
  }
  if (failed_.ok()) announce(std::move(messages));
}

// A group fails as a whole where a part of it has no backend that can do it; by then another part would have run.
void EngineLoop::submit_fresh(std::vector<Message>& messages) {
  std::map<std::pair<int, std::uint64_t>, std::string> refusals;  // by set and digest of the group
  const auto group_of = [](const Tensor& tensor) {
    return std::pair(tensor.submission().process_set, tensor.signature().group.digest);
  };
  for (const TensorPtr& tensor : fresh_) {
    const ProcessSet* set = tensor->signature().group.size == 0 ? nullptr : sets_.find(tensor->key().set);
    if (set == nullptr) continue;
    if (const Status can = Executor::can_run(*set, *tensor); !can.ok()) {
      refusals.try_emplace(group_of(*tensor), can.message());
    }
  }
  for (const TensorPtr& tensor : fresh_) {
    const auto refusal = refusals.find(group_of(*tensor));
    member_.submit(tensor, messages, refusal == refusals.end() ? std::string() : refusal->second);
  }
}

void EngineLoop::take_call_of(Request& request, std::vector<Message>& messages) {
  // The file is finished when all have called, so the leader has the events of each by then.
  if (is_of_timeline(request.call)) ship_events();
  messages.emplace_back(message::Called{.call = request.call, .refused = request.timeline.status()});
  auto& calls = request.call.unordered ? unordered_ : calls_;
  calls.push_back({.call = std::move(request.call),
                   .ticket = std::move(request.ticket),
                   .timeline = request.timeline.ok() ? *std::move(request.timeline) : nullptr,
                   .since = Clock::now()});
}

// The leader is a member too; it hears itself without a wire between.
void EngineLoop::announce(std::vector<Message> messages) {
  if (leader_) {
    for (Message& message : messages) hear(0, read_, message);
    return;
  }
  auto& out = outbox_.to_leader();
  out.insert(out.end(), std::make_move_iterator(messages.begin()), std::make_move_iterator(messages.end()));
}

void EngineLoop::complete_done() {
  shared_.table.complete(done_);
  done_.clear();
  shared_.token.news().change_and_wake();
}

// --- between turns ---

Status EngineLoop::drive(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline) {
  for (;;) {
    try {
      return turn_until(who, satisfied, deadline);
    } catch (const std::bad_alloc&) {
      fail_by_exception(Errc::kOutOfMemory, "no memory is left for its part in the job");
    } catch (const std::exception& error) {
      fail_by_exception(Errc::kInternal, std::string("a bug in distrun, please report it: ") + error.what());
    }
  }
}

Status EngineLoop::turn_until(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline) {
  const auto enough = [&] {
    return satisfied() || (who == ProgressToken::Holder::kEngine && shared_.token.callers_waiting());
  };
  Patience patience;
  for (;;) {
    const bool moved = turn();
    bool late = false;  // what moves may do so for much longer than somebody waits
    if (++turns_ % kTurnsPerClock == 0) {
      const TimePoint now = Clock::now();
      see_clock(now);
      late = deadline <= now;
    }
    if (turns_ % kTurnsPerLook == 0) look_around();
    if (enough()) return {};
    if (late) return {Errc::kTimeout, "the deadline passed"};
    if (moved) {
      if (patience.yields > 0) spin_budget_ = std::min(spin_budget_ * 2, kMostSpin);
      patience = {};
      continue;
    }
    if (linger(who, patience, deadline)) continue;
    if (deadline <= Clock::now()) return {Errc::kTimeout, "the deadline passed"};
    if (Status status = block(enough, deadline); status.code() == Errc::kInterrupted) return status;
    patience = {};
  }
}

// What a turn that moves something leaves out: a program whose operations all complete at once must hear of a death
// too.
void EngineLoop::look_around() {
  [[maybe_unused]] const auto polled = poll(TimePoint::min());
  run_timers(Clock::now());
  if (!check_health()) end_if_done();
}

// Puts the block off while that may pay: true to look again.
bool EngineLoop::linger(ProgressToken::Holder who, Patience& patience, TimePoint deadline) {
  const bool caller = who == ProgressToken::Holder::kCaller;
  if (over_.load(std::memory_order_relaxed)) return false;
  if (executor_.must_be_asked()) return ask_again(deadline);
  if (!caller && !executor_.polls_memory()) return false;
  // A spin would keep the core from a library's own threads.
  if (options_.spin && !executor_.moves_elsewhere()) return spin(caller, patience.until);
  return caller && give_up_core(patience, deadline);
}

bool EngineLoop::give_up_core(Patience& patience, TimePoint deadline) {
  const TimePoint now = Clock::now();
  if (deadline <= now) return false;
  if (patience.yields == 0) patience.until = now + spin_budget_;
  if (++patience.yields > kLeastYields && now >= patience.until) {
    spin_budget_ = std::max(spin_budget_ / 2, kLeastSpin);
    return false;
  }
  ::sched_yield();
  return true;
}

// Looks at memory until something moves; false when it is time to block. `until` is when, TimePoint::min() at first.
bool EngineLoop::spin(bool caller, TimePoint& until) {
  const TimePoint now = Clock::now();
  if (until == TimePoint::min()) until = now + (caller ? spin_budget_ : kEngineSpin);
  if (now >= until) {
    if (caller) spin_budget_ = std::max(spin_budget_ / 2, kLeastSpin);
    return false;
  }
  for (int looks = 0; looks < kLooksPerCheck; ++looks) {
    relax();
    if (!turn()) continue;
    if (caller) spin_budget_ = std::min(spin_budget_ * 2, kMostSpin);
    return true;
  }
  ::sched_yield();                                              // the peer may be waiting for this very core
  [[maybe_unused]] const auto polled = poll(TimePoint::min());  // sockets, without blocking
  return true;
}

// For a library that moves only while it is asked: there is nothing to sleep for. Descriptors and timers are not
// forgotten over it, and the peers that it waits for may need this core.
bool EngineLoop::ask_again(TimePoint deadline) {
  for (int looks = 0; looks < (options_.spin ? kLooksPerCheck : kLeastYields); ++looks) {
    relax();
    if (turn()) return true;
    if (!options_.spin) ::sched_yield();
  }
  ::sched_yield();
  look_around();
  return Clock::now() < deadline;
}

Status EngineLoop::block(const std::function<bool()>& enough, TimePoint until) {
  see_clock(Clock::now());
  sleeping_.store(true, std::memory_order_seq_cst);
  // Whoever changes what `enough` looks at does so before it asks whether the loop sleeps (poke).
  const auto look = [this, &enough] { return turn() || enough(); };
  const Result<int> polled = poll(std::min(until, next_timer()), look);
  sleeping_.store(false, std::memory_order_seq_cst);
  const TimePoint now = Clock::now();
  see_clock(now);
  if (!polled.ok()) {
    if (polled.status().code() == Errc::kInterrupted) return polled.status();
    fail(polled.status().with_context("the wait set"), true);
  }
  run_timers(now);
  return {};
}

Result<int> EngineLoop::poll(TimePoint until, const net::WaitSet::LookAgain& look_again) {
  everywhere_ = true;  // the last look before a sleep
  auto polled = options_.wait_set->poll(until, look_again);
  everywhere_ = true;
  return polled;
}

void EngineLoop::poke() {
  if (sleeping_.load(std::memory_order_seq_cst) && sleeping_.exchange(false, std::memory_order_seq_cst)) {
    options_.wait_set->wake();
  }
}

}  // namespace distrun::engine
