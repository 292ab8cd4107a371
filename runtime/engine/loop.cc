#include "runtime/engine/loop.h"

#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/engine/leader.h"
#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

// How long a failing rank tries to send its reason to the others.
constexpr Duration kLastWords = std::chrono::milliseconds(500);

bool is_of_timeline(const Call& call) {
  return call.kind == Call::Kind::kStartTimeline || call.kind == Call::Kind::kStopTimeline;
}

void warn(Log* log, const std::string& text) {
  if (log != nullptr) log->warning(text);
}

// Half of host_timeout. The launcher's agents need the other half to detect that a path is cut.
Duration path_check_after(const EngineOptions& options) {
  const auto& hosts = options.hosts;
  const bool several = std::any_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host != hosts.front(); });
  return several && options.job_channel != nullptr ? duration_of(options.world.host_timeout / 2) : Duration::zero();
}

WatchdogOptions watchdog_options(const EngineOptions& options) {
  return {.rank = options.world.rank,
          .hosts = options.hosts,
          .warning = duration_of(options.settings.stall_warning_time),
          .shutdown = duration_of(options.settings.stall_shutdown_time),
          .path_check = path_check_after(options),
          .deadlock = duration_of(options.settings.deadlock_time)};
}

std::int64_t cpu_used_ns() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) { return time.tv_sec * 1'000'000'000LL + time.tv_usec * 1'000LL; };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// The engine's part of the program's state.
net::ProgramState known_state(const std::optional<OldestWork>& work, net::MainWait wait, TimePoint now) {
  net::ProgramState state{.wait = wait};
  if (!work) return state;
  state.operation = work->what;
  state.waited = std::chrono::duration<double>(now - work->since).count();
  return state;
}

std::unique_ptr<LeaderLink> leader_of(const EngineOptions& options, Outbox& outbox, LauncherLink& launcher) {
  if (options.world.rank != 0) return std::make_unique<RemoteLeader>(outbox);
  CoordinatorOptions coordinator{.world_size = options.world.size,
                                 .hosts = options.hosts,
                                 .fusion_threshold = options.settings.fusion_threshold,
                                 .cache_capacity = options.settings.cache_capacity,
                                 .stall_warning = duration_of(options.settings.stall_warning_time),
                                 .stall_shutdown = duration_of(options.settings.stall_shutdown_time),
                                 .next_set = options.next_process_set};
  return std::make_unique<Leader>(
      std::move(coordinator),
      Leader::Links{.outbox = outbox, .launcher = launcher, .plane = options.control_plane, .log = options.log});
}

Status malformed_message(const Status& why, int from, const std::vector<std::string>& hosts) {
  ErrorInfo info{.code = Errc::kProtocol, .ranks = {from}, .cause = "a malformed message", .usable = false};
  if (const auto host = static_cast<std::size_t>(from); host < hosts.size()) info.host = hosts[host];
  info.link = LinkEnd::kMalformed;
  info.message = describe_ranks(info.ranks, hosts) + " sent a malformed message: " + why.message();
  return Status(std::move(info));
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, Shared shared)
    : options_(options),
      shared_(shared),
      outbox_(options.control_plane),
      launcher_(options.job_channel, *options.wait_set, options.log),
      follower_(options, shared.table, shared.token.news()),
      leader_(leader_of(options, outbox_, launcher_)),
      liveness_(watchdog_options(options)),
      leaving_(options.world.rank, options.hosts),
      pacing_(*options.wait_set, options.spin) {}

Status EngineLoop::open() {
  DISTRUN_RETURN_IF_ERROR(follower_.open());
  return launcher_.watch([this](const Result<std::vector<net::JobEvent>>& events) {
    if (!events.ok()) return liveness_.launcher_gone(events.status());
    for (const net::JobEvent& event : *events) {
      const TimePoint now = Clock::now();
      if (event.kind == net::JobEvent::Kind::kStopAsked) {
        ask_to_stop(event.cause);
      } else if (event.kind == net::JobEvent::Kind::kStacksAsked) {
        shared_.probe.ask(known_state(oldest_work(), shared_.token.main_wait(), now),
                          [this](const net::ProgramState& state) { launcher_.report_state(state); });
      } else {
        liveness_.take_event(event, now);
      }
    }
  });
}

// --- one turn ---

bool EngineLoop::turn() {
  bool moved = false;
  if (shared_.requests.has_new() || shared_.table.has_new()) {
    take_local();
    moved = true;
  }
  moved = receive() || moved;
  moved = decide() || moved;
  moved = follower_.progress(everywhere_) || moved;
  moved = outbox_.send() || moved;
  if (outbox_.failed()) {
    liveness_.operation_failed(outbox_.take_failure().with_context("the control plane"), Clock::now());
  }
  moved = follower_.complete() || moved;
  if (moved) return true;
  const bool changed = check_health();
  everywhere_ = false;
  return changed || end_if_done() || !outbox_.empty();  // this turn's messages must not wait for a sleep
}

void EngineLoop::take_local() {
  // Takes the requests first. A rank closes the table before it asks to leave, so the tensors taken afterwards include
  // all that it submitted.
  std::vector<Request> requests = shared_.requests.take();
  std::vector<Message> messages;
  leaving_.failed() ? follower_.forget_new() : follower_.submit(messages);
  for (Request& request : requests) take(request, messages);
  if (leaving_.failed()) return;
  for (Message& message : messages) act_on(leader_->submit(std::move(message)));
}

void EngineLoop::take(Request& request, std::vector<Message>& messages) {
  switch (request.kind) {
    case Request::Kind::kAbort:
      return fail(request.why, true);
    case Request::Kind::kLeave:
      ship_events();
      leaving_.leave(Clock::now());
      messages.emplace_back(message::Leaving{});
      return;
    case Request::Kind::kStop:
      return ask_to_stop(request.cause);
    case Request::Kind::kGo:
      return leaving_.ask_to_go(std::move(request.ticket));
    case Request::Kind::kSend:
      messages.push_back(*std::move(request.message));
      return;
    case Request::Kind::kCall:
      break;
  }
  if (leaving_.failed()) {
    request.ticket->finish(leaving_.failure(), -1);
    return shared_.token.news().change_and_wake();
  }
  // The file is finished when all ranks have made the call. By then the leader has the events of each rank.
  if (is_of_timeline(request.call)) ship_events();
  follower_.call(std::move(request), messages);
}

bool EngineLoop::receive() {
  if (options_.control_plane == nullptr) return false;
  bool moved = false;
  while (options_.control_plane->receive(received_)) {
    moved = true;
    auto frame = decode(received_.bytes);
    if (!frame.ok()) {
      fail(malformed_message(frame.status(), received_.from, options_.hosts), true);
      continue;
    }
    leader_->has_read(received_.from, frame->index);
    for (Message& message : frame->messages) take_message(received_.from, frame->index, message);
  }
  return moved;
}

void EngineLoop::take_message(int from, std::uint64_t index, Message& message) {
  if (leaving_.failed()) return;
  if (const auto* ping = std::get_if<message::Ping>(&message)) {
    leader_->queue(from, liveness_.answer(*ping, oldest_work(), Clock::now()));
  } else if (const auto* pong = std::get_if<message::Pong>(&message)) {
    if (liveness_.answered(from, *pong)) leader_->clock_answered(from, *pong);
  } else {
    act_on(leader_->take_message(from, index, message));
  }
}

void EngineLoop::act_on(const LeaderLink::Effects& effects) {
  if (!effects.failure.ok()) {
    // If this rank gave a peer up because of malformed bytes, the peer loses this rank too. The peer's report may
    // arrive first, but this rank knows the cause.
    const auto own = liveness_.knows_better(effects.failure.info());
    return own ? fail(Status(*own), effects.report_to_others) : fail(effects.failure, effects.report_to_others, true);
  }
  if (effects.follow) follow_log();
  if (effects.hold_stop) {
    if (!stopping_since_) stopping_since_ = Clock::now();
    act_on(leader_->submit(message::StopCount{.calls = shared_.stop.hold()}));
  }
  if (effects.stop_at) {
    shared_.stop.decide(*effects.stop_at);
    stopping_since_.reset();
    shared_.token.news().change_and_wake();
  }
  if (effects.drained >= 0) liveness_.drained(effects.drained);
  if (effects.report_wait) {
    // The answer is sent when the program has reported its state. A rank in shutdown waits for a limited time. Rank 0
    // stays in shutdown as long as the others need it, and their own limit ends that.
    const bool goes = leaving_.left_at() && options_.world.rank != 0;
    message::WaitAnswer answer{.round = *effects.report_wait,
                               .moves = follower_.executor().moving(),
                               .changes = follower_.changes(),
                               .cpu_ns = cpu_used_ns()};
    shared_.probe.ask(known_state(oldest_work(), shared_.token.main_wait(), Clock::now()),
                      [this, answer = std::move(answer), goes](net::ProgramState state) mutable {
                        const bool waits = !state.operation.empty();
                        answer.wait = !waits ? net::MainWait::kOutside : goes ? net::MainWait::kLimited : state.wait;
                        answer.operation = std::move(state.operation);
                        shared_.requests.put({.kind = Request::Kind::kSend, .message = std::move(answer)});
                        wake();
                      });
  }
  if (effects.wait_of >= 0 && liveness_.take_answer(effects.wait_of, effects.wait)) {
    std::vector<net::RankWait> waits = leader_->waits();
    const auto limit = duration_of(options_.settings.deadlock_time);
    liveness_.end(Status(deadlock_error(waits, liveness_.operations(), options_.hosts, limit)), true);
    launcher_.report_waits(std::move(waits));
  }
}

void EngineLoop::ask_to_stop(const std::string& cause) {
  if (leaving_.ended()) return;
  if (!stopping_since_ && !shared_.stop.known()) stopping_since_ = Clock::now();
  act_on(leader_->submit(message::StopAsked{.cause = cause}));
}

// --- the log ---

bool EngineLoop::decide() {
  if (leaving_.failed()) return false;
  const LeaderLink::Decided decided = leader_->decide(follower_.executor().active());
  const bool followed = follow_log();
  if (decided.abort.code() == Errc::kTimeout) {
    // A rank may be late only because it waits for a rank that does not answer. Then the silent rank is the cause.
    liveness_.end(decided.abort);
  } else if (!decided.abort.ok()) {
    launcher_.report_end(decided.abort);
    fail(decided.abort, true);
  }
  return followed || decided.warned;
}

bool EngineLoop::follow_log() {
  bool followed = false;
  while (!leaving_.failed()) {
    Entry* entry = leader_->next_entry();
    if (entry == nullptr) break;
    follow(*entry);
    followed = true;
  }
  return followed;
}

void EngineLoop::follow(Entry& entry) {
  if (const auto* left = std::get_if<entry::Left>(&entry)) {
    liveness_.left(left->rank);
    return act_on(leader_->left(left->rank));
  }
  if (std::holds_alternative<entry::Shutdown>(entry)) return leaving_.end_log();
  if (const auto* timeline = std::get_if<entry::Timeline>(&entry)) {
    for (auto events = follower_.take_events(); !events.empty(); events = follower_.take_events()) {
      leader_->write_last(std::move(events));
    }
    follower_.stop_recording();
    leader_->stop_timeline();
    if (timeline->path.empty()) return;
    follower_.start_recording();
    return leader_->start_timeline(follower_.new_timeline());
  }
  Follower::Followed followed = follower_.follow(entry);
  if (!followed.failure.ok()) return fail(followed.failure, true);
  if (!followed.made) return;
  liveness_.waited(Clock::now());
  everywhere_ = true;
  act_on(leader_->submit(*std::move(followed.made)));
}

void EngineLoop::ship_events() {
  for (auto events = follower_.take_events(); !events.empty(); events = follower_.take_events()) {
    act_on(leader_->submit(message::Events{.events = std::move(events)}));
  }
}

// --- between turns ---

Status EngineLoop::drive(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline) {
  for (;;) {
    try {
      return turn_until(who, satisfied, deadline);
    } catch (const std::bad_alloc&) {
      fail_by_exception(Errc::kOutOfMemory, "no memory is left for distrun");
    } catch (const std::exception& error) {
      fail_by_exception(Errc::kInternal, std::string("a bug in distrun, please report it: ") + error.what());
    }
  }
}

Status EngineLoop::turn_until(ProgressToken::Holder who, const std::function<bool()>& satisfied, TimePoint deadline) {
  const auto enough = [&] {
    return satisfied() || (who == ProgressToken::Holder::kEngine && shared_.token.callers_waiting());
  };
  pacing_.restart();
  for (;;) {
    const bool moved = turn();
    const Pacing::Due due = pacing_.count_turn();
    bool late = false;  // the deadline ends the wait even while operations move
    if (due.clock) {
      const TimePoint now = Clock::now();
      see_clock(now);
      late = deadline <= now;
    }
    if (due.timers) check_all();
    if (enough()) return {};
    if (late) return {Errc::kTimeout, "the deadline passed"};
    if (moved) {
      pacing_.moved();
      continue;
    }
    if (keep_polling(who, deadline)) continue;
    if (deadline <= Clock::now()) return {Errc::kTimeout, "the deadline passed"};
    if (Status status = block(enough, deadline); status.code() == Errc::kInterrupted) return status;
    pacing_.restart();
  }
}

// Delays blocking while that may pay off. True: run another turn.
bool EngineLoop::keep_polling(ProgressToken::Holder who, TimePoint deadline) {
  using Kind = Pacing::Pause::Kind;
  if (leaving_.over()) return false;
  const Executor& executor = follower_.executor();
  const Pacing::Work work{.caller = who == ProgressToken::Holder::kCaller,
                          .must_be_asked = executor.must_be_asked(),
                          .polls_memory = executor.polls_memory(),
                          .moves_elsewhere = executor.moves_elsewhere()};
  const Pacing::Pause pause = pacing_.pause(work, deadline);
  if (pause.looks == 0) return pause.kind == Kind::kTurn;
  for (int looks = 0; looks < pause.looks; ++looks) {
    Pacing::relax();
    if (turn()) {
      pacing_.found(pause, work);
      return true;
    }
    pacing_.between_looks();
  }
  Pacing::give_up_core();
  if (pause.kind == Kind::kSpin) {
    [[maybe_unused]] const auto polled = poll(TimePoint::min());  // polls the sockets without blocking
    return true;
  }
  check_all();
  return Clock::now() < deadline;
}

Status EngineLoop::block(const std::function<bool()>& enough, TimePoint until) {
  see_clock(Clock::now());
  pacing_.fall_asleep();
  // Other threads change the data that `enough` reads before they check whether the loop sleeps (poke).
  const auto look = [this, &enough] { return turn() || enough(); };
  const Result<int> polled = poll(std::min(until, next_timer()), look);
  pacing_.wake_up();
  const TimePoint now = Clock::now();
  see_clock(now);
  if (!polled.ok()) {
    if (polled.status().code() == Errc::kInterrupted) return polled.status();
    fail(polled.status().with_context("the wait set"), true);
  }
  run_timers(now);
  return {};
}

Result<int> EngineLoop::poll(TimePoint until, const net::WaitSet::LookAgain& check_again) {
  everywhere_ = true;  // for the last look before a sleep
  auto polled = options_.wait_set->poll(until, check_again);
  everywhere_ = true;
  return polled;
}

// --- timers and health ---

std::optional<OldestWork> EngineLoop::oldest_work() const {
  return follower_.oldest_work(stopping_since_, leaving_.left_at());
}

// While nothing is in flight there are no timers.
TimePoint EngineLoop::next_timer() const {
  TimePoint next = TimePoint::max();
  if (leaving_.ended()) return next;
  for (const auto& timer : {leader_->next_tick(), liveness_.next_timer(oldest_work()), follower_.events_due()}) {
    if (timer) next = std::min(next, *timer);
  }
  return next == TimePoint::max() ? next : std::min(next, liveness_.next_look());
}

void EngineLoop::see_clock(TimePoint now) {
  if (const auto gap = liveness_.see_clock(now)) leader_->suspended(*gap);
}

void EngineLoop::run_timers(TimePoint now) {
  see_clock(now);
  if (leaving_.ended()) return;
  leader_->tick(now);
  const std::optional<OldestWork> work = oldest_work();
  Liveness::Check found = liveness_.check(work, now);
  for (auto& [rank, ping] : found.pings) leader_->queue(rank, ping);
  for (const std::string& warning : found.warnings) warn(options_.log, warning);
  if (found.long_wait) {
    launcher_.report_no_progress("has waited for " + seconds_text(now - work->since) + " in " + work->what,
                                 work->tensor);
  }
  if (found.wait_over) launcher_.report_waits({});
  if (found.wait) launcher_.report_waits({*std::move(found.wait)});
  if (found.ask_waits) {
    leader_->queue(-1, message::WaitAsked{.round = *found.ask_waits});
    act_on({.report_wait = found.ask_waits});
  }
  if (!found.abort.ok()) {
    launcher_.report_end(found.abort, found.deadlock);
    fail(found.abort, true);
  }
  if (follower_.events_due().value_or(TimePoint::max()) <= now) ship_events();
}

// The checks that a turn skips when it moves something. Without them, a program whose operations all complete at once
// would not notice a dead rank.
void EngineLoop::check_all() {
  [[maybe_unused]] const auto polled = poll(TimePoint::min());
  run_timers(Clock::now());
  if (!check_health()) end_if_done();
}

// Cheap in the normal case: it does not read the clock.
bool EngineLoop::check_health() {
  if (leaving_.ended()) return false;
  const auto lost = options_.control_plane == nullptr ? std::nullopt : options_.control_plane->lost();
  const Status& failure = follower_.executor().failure();
  if (lost || !failure.ok() || follower_.has_backend_lost(everywhere_)) {
    const TimePoint now = Clock::now();
    const bool ask_leader = liveness_.connections_ended(follower_.lost_peers(), lost, now);
    if (ask_leader) leader_->queue(0, Liveness::clock_question(now));  // any answer is good enough
    if (!failure.ok()) liveness_.operation_failed(failure, now);
  }
  const auto verdict = liveness_.verdict();
  if (!verdict) return false;
  // An operation of this rank ran out of memory or got unusable memory, and no peer's end is the reason.
  const bool memory = verdict->code == Errc::kOutOfMemory || verdict->own_memory;
  const bool own = memory && verdict->ranks.empty();
  const bool no_rank = !own && verdict->ranks.empty();
  if (no_rank) launcher_.report_operation(Status(*verdict));
  own ? fail_here(*verdict) : fail(Status(*verdict), true);
  return true;
}

// --- the end ---

void EngineLoop::fail(const Status& why, bool report_to_others, bool by_other) {
  if (!leaving_.fail(why)) return;
  const Status& failure = leaving_.failure();
  follower_.fail(failure);
  leader_->died(failure);
  launcher_.report_loss(failure, options_.world.rank, by_other);
  if (report_to_others) leader_->queue(-1, message::Abort{.why = failure});
  shared_.token.news().change_and_wake();
  if (options_.log != nullptr) options_.log->debug("the job ends: " + failure.message());
}

// Ends the job because of this rank's own failure. The launcher gets its report before the other ranks do. Otherwise a
// rank that ends because of this one could be quicker, and the launcher would report it as the cause.
void EngineLoop::fail_here(ErrorInfo info) {
  const OwnFailure own = own_failure(std::move(info), options_.world.rank, options_.hosts);
  launcher_.report_failure(own.cause, own.why.info().tensor);
  fail(own.why, true);
}

// Call this in an exception handler. Half-done work stays as it is: the job ends, and nothing uses that work any more.
void EngineLoop::fail_by_exception(Errc code, const std::string& what) {
  if (leaving_.failed() || over()) throw;
  fail_here({.code = code, .message = what});
}

void EngineLoop::try_to_go() {
  Leaving::Unfinished unfinished{.confirmed = liveness_.has_left(options_.world.rank),
                                 .tensor = follower_.first_tensor(),
                                 .call = follower_.oldest_call()};
  for (int rank = 0; rank < options_.world.size; ++rank) {
    if (!liveness_.has_left(rank)) unfinished.working.push_back(rank);
  }
  const Leaving::Answer answer = leaving_.try_to_go(unfinished, Clock::now());
  if (!answer.warning.empty()) warn(options_.log, answer.warning);
  if (answer.given) shared_.token.news().change_and_wake();
}

bool EngineLoop::end_if_done() {
  follower_.retire_sets();
  // Nothing of this rank is in flight: no tensor, no call, and no operation of the others after a join. So nothing ever
  // will be. The log ends when this is true for all ranks. Until then each rank still gets the news of a failure, and
  // the others notice its death.
  if (leaving_.draining() && follower_.nothing_in_flight()) {
    leaving_.drained();
    ship_events();
    act_on(leader_->submit(message::Drained{}));
    return true;
  }
  if (leaving_.wants_to_go()) try_to_go();
  if (!leaving_.ended() || over() || !follower_.executor().idle()) return false;
  if (leaving_.failed()) {
    follower_.complete_all(leaving_.failure());
  } else if (options_.control_plane != nullptr && options_.control_plane->pending()) {
    return false;  // the last entry must reach the others before this rank may end
  }
  ship_events();
  leaving_.finish();
  shared_.token.news().change_and_wake();
  return true;
}

void EngineLoop::close(const Status& why) {
  const bool tells = leaving_.failed();
  auto* plane = options_.control_plane;
  try {
    fail(why, false);
    const TimePoint deadline = Clock::now() + kLastWords;
    while (turn() || !over()) {
    }
    while (tells && plane != nullptr && plane->pending() && Clock::now() < deadline) {
      plane->progress();
      [[maybe_unused]] const auto polled = options_.wait_set->poll(Clock::now() + std::chrono::milliseconds(10));
    }
  } catch (const std::exception& error) {
    // There is no caller left to report to. Operations in flight are not completed.
    warn(options_.log, std::string("the session was closed while its engine was broken: ") + error.what());
  }
}

}  // namespace distrun::engine
