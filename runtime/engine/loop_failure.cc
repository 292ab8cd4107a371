// The loop's part that ends things: deaths, aborts, shutdown, closing.
#include <sys/epoll.h>

#include <algorithm>
#include <exception>
#include <new>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/engine/loop.h"
#include "runtime/engine/readiness/mismatch.h"
#include "runtime/engine/readiness/stall.h"

namespace distrun::engine {
namespace {

// How long a dying rank tries to tell the others why.
constexpr Duration kLastWords = std::chrono::milliseconds(500);

}  // namespace

EngineLoop::~EngineLoop() {
  if (launcher_watched_) options_.wait_set->remove(options_.job_channel->fd());
}

Status EngineLoop::open() {
  std::vector<int> world(static_cast<std::size_t>(options_.world.size));
  for (std::size_t i = 0; i < world.size(); ++i) world[i] = static_cast<int>(i);
  ProcessSet& set = sets_.add(0, world);
  auto backends = options_.backends->make(0, world);
  if (!backends.ok()) return backends.status();
  set.backends = *std::move(backends);
  shared_.table.open_set(0, std::move(world));
  if (options_.job_channel == nullptr) return {};
  DISTRUN_RETURN_IF_ERROR(options_.wait_set->add(options_.job_channel->fd(), EPOLLIN,
                                                 [this](std::uint32_t events) { on_launcher(events); }));
  launcher_watched_ = true;
  return {};
}

void EngineLoop::on_launcher(std::uint32_t) {
  auto events = options_.job_channel->receive();
  if (events.ok()) {
    for (const net::JobEvent& event : *events) {
      const bool stop = event.kind == net::JobEvent::Kind::kStopAsked;
      stop ? ask_to_stop(event.cause) : detector_.heard(event, Clock::now());
    }
    return;
  }
  // The end of file would be reported again and again.
  options_.wait_set->remove(options_.job_channel->fd());
  launcher_watched_ = false;
  detector_.launcher_gone(events.status(), options_.world.rank);
}

// Only the ranks know that one which left in good order is still needed, or that one holds the others up; the report
// and the exit code are the launcher's.
void EngineLoop::tell_launcher(const Status& why) {
  const bool left = why.code() == Errc::kRankLeft;
  if (options_.job_channel == nullptr || why.info().ranks.empty() || !(left || why.code() == Errc::kTimeout)) return;
  const int rank = why.info().ranks.front();
  const Status told = left ? options_.job_channel->report_early_leave(rank, why.message())
                           : options_.job_channel->report_stall(rank, why.message());
  if (!told.ok() && options_.log != nullptr) options_.log->debug("the launcher could not be told: " + told.message());
}

// Cheap when all is well: no clock.
bool EngineLoop::check_health() {
  if (!failed_.ok() || log_ended_) return false;
  const auto& plane = options_.control_plane;
  const bool peer_lost = plane != nullptr && plane->lost().has_value();
  const auto lost = [](const ProcessSet& set) {
    return std::any_of(set.backends.begin(), set.backends.end(),
                       [](const auto& backend) { return backend && backend->lost_peer() >= 0; });
  };
  const auto active = executor_.active();
  const bool backend_lost =
      everywhere_
          ? std::any_of(sets_.all().begin(), sets_.all().end(), [&](const auto& set) { return lost(set.second); })
          : std::any_of(active.begin(), active.end(), [&](const ProcessSet* set) { return lost(*set); });
  if (peer_lost || backend_lost || !executor_.failure().ok()) suspect_lost_peers(Clock::now());
  if (!detector_.deadline()) return false;
  const auto verdict = detector_.verdict(Clock::now());
  if (!verdict) return false;
  // An operation of this rank's had no memory, or none that can be used, and no peer's end is the reason.
  const bool memory = verdict->code == Errc::kOutOfMemory || verdict->own_memory;
  const bool own = memory && verdict->ranks.empty();
  own ? fail_here(*verdict) : fail(Status(*verdict), true);
  return true;
}

void EngineLoop::suspect_lost_peers(TimePoint now) {
  const auto* plane = options_.control_plane;
  const int lost = plane == nullptr ? -1 : plane->lost().value_or(-1);
  if (lost >= 0) detector_.suspect(lost, "its control connection ended", now);
  std::set<int> missed;
  std::set<int> gone;  // by right, as far as their sets tell; another may miss them
  for (auto& [id, set] : sets_.all()) {
    for (const auto& backend : set.backends) {
      const int rank = backend ? backend->lost_peer() : -1;
      if (rank < 0) continue;
      // What the control plane misses is needed: the leader, before the log has ended.
      if (detector_.has_left(rank) && executor_.in_flight(id) == 0 && lost != rank) {
        gone.insert(rank);
      } else {
        missed.insert(rank);
        suspect_peer(rank, "its " + std::string(backend->name()) + " connection ended", now);
      }
    }
  }
  for (const int rank : gone) {
    if (!missed.contains(rank)) detector_.forgive(rank);
  }
  if (!executor_.failure().ok()) detector_.suspect_operation(executor_.failure(), now);
}

// Members end each for itself when the leader is silent, so a peer may have ended for that and not be the cause.
void EngineLoop::suspect_peer(int rank, const std::string& sign, TimePoint now) {
  if (!leader_ && rank != 0 && !detector_.suspects(rank)) {
    detector_.suspect_silent_leader(rank, now);
    ask_clock(0);  // any answer will do
  }
  detector_.suspect(rank, sign, now);
}

// Backends first, so that nothing touches a tensor's memory when its handle completes (end_if_done).
void EngineLoop::fail(const Status& why, bool tell) {
  if (!failed_.ok() || over_.load(std::memory_order_relaxed)) return;
  ErrorInfo info = why.info();
  info.usable = false;
  failed_ = Status(std::move(info));
  shared_.table.close(failed_);
  executor_.abort(failed_);
  if (coordinator_) coordinator_->died(failed_);
  if (tell && leader_) outbox_.say(-1, message::Abort{.why = failed_});
  if (tell && !leader_) outbox_.to_leader().emplace_back(message::Abort{.why = failed_});
  for (auto* calls : {&calls_, &unordered_}) {
    for (const CallInFlight& one : *calls) one.ticket->finish(failed_, -1);
    calls->clear();
  }
  shared_.token.news().change_and_wake();
  if (options_.log != nullptr) options_.log->debug("the job ends: " + failed_.message());
}

// This rank's own failure. The launcher hears of it first: it takes who ends because of this one for the cause, if that
// one is quicker.
void EngineLoop::fail_here(ErrorInfo info) {
  const int rank = options_.world.rank;
  const bool memory = info.code == Errc::kOutOfMemory;
  if (memory) info.message += "; run fewer ranks on its host, or allow them more memory";
  if (!info.own_memory) info.cause = memory ? "out of memory" : "internal error";
  const std::string what = info.cause + ": " + info.message;
  info.message = describe_ranks(std::span(&rank, 1), options_.hosts) + ": " + info.message;
  info.ranks = {rank};
  info.host = options_.hosts.at(static_cast<std::size_t>(rank));
  try {
    const Status told = options_.job_channel == nullptr ? Status() : options_.job_channel->report_failure(what);
    if (!told.ok() && options_.log != nullptr) {
      options_.log->debug("the launcher could not be told: " + told.message());
    }
  } catch (const std::bad_alloc&) {
    // There is no memory for that; the others are told all the same.
  }
  fail(Status(std::move(info)), true);
}

// In a handler. What is half done stays so: the job ends, and nothing is built on it any more.
void EngineLoop::fail_by_exception(Errc code, const std::string& what) {
  if (!failed_.ok() || over()) throw;
  fail_here({.code = code, .message = what});
}

// Of a rank that has left: nothing that it submitted or called is in flight, nor what it stands in for after a join; so
// nothing ever will be. The log ends when all are so far, so that until then every rank is there to be told of a
// failure, and is missed if it dies.
bool EngineLoop::drain() {
  if (!left_at_ || drained_ || !failed_.ok()) return false;
  if (!executor_.idle() || oldest_call() != nullptr || !shared_.table.all_in_flight().empty()) return false;
  drained_ = true;
  ship_events();
  std::vector<Message> messages;
  messages.emplace_back(message::Drained{});
  announce(std::move(messages));
  return true;
}

// shutdown_timeout has passed. Nobody needs a member that the log says has left and that has nothing in flight. The
// leader is needed until the last one has left, for the log is here.
void EngineLoop::go_if_confirmed() {
  const auto answer = [this](const Status& status) {
    for (const auto& ticket : std::exchange(going_, {})) ticket->finish(status, -1);
    shared_.token.news().change_and_wake();
  };
  if (!failed_.ok() || log_ended_) return answer({});
  if (!detector_.has_left(options_.world.rank)) return;
  if (const auto in_flight = shared_.table.all_in_flight(); !in_flight.empty()) {
    const std::string& name = in_flight.front()->submission().name;
    return answer(Status(ErrorInfo{.code = Errc::kTimeout,
                                   .message = "shutdown: '" + name +
                                              "' was submitted here and has not completed within shutdown_timeout; "
                                              "submit it on every rank, or wait for it before shutdown",
                                   .tensor = name}));
  }
  if (const CallInFlight* call = oldest_call()) {
    return answer(
        {Errc::kTimeout, "shutdown: " + describe(call->call) +
                             " was called here and has not ended within shutdown_timeout; make the same calls "
                             "on every rank that takes part, before shutdown"});
  }
  if (!drained_) return;  // what it stands in for is on its way
  std::vector<int> working;
  for (int rank = 0; rank < options_.world.size; ++rank) {
    if (!detector_.has_left(rank)) working.push_back(rank);
  }
  if (working.empty()) return answer({});  // the end of the log is on its way
  const std::string names = describe_ranks(working, options_.hosts);
  if (!leader_) {
    warn("shutdown: " + names + " did not leave within " + seconds_text(Clock::now() - *left_at_) +
         " (shutdown_timeout); still working, it seems. This rank leaves without waiting any longer");
    log_ended_ = true;
  } else if (!std::exchange(stays_, true)) {
    warn("shutdown: " + names + " did not leave within " + seconds_text(Clock::now() - *left_at_) +
         " (shutdown_timeout); still working, it seems. Rank 0 coordinates the job, so it waits for them");
  }
  answer({});
}

bool EngineLoop::end_if_done() {
  if (!retiring_.empty()) retire_sets();
  if (drain()) return true;
  if (!going_.empty()) go_if_confirmed();
  if ((failed_.ok() && !log_ended_) || over_.load(std::memory_order_relaxed)) return false;
  if (!executor_.idle()) return false;
  if (!failed_.ok()) {
    for (TensorPtr& tensor : shared_.table.all_in_flight()) {
      done_.push_back({.tensor = std::move(tensor), .status = failed_});
    }
    if (!done_.empty()) complete_done();
  } else if (options_.control_plane != nullptr && options_.control_plane->pending()) {
    return false;  // the last entry must reach the others before this rank may go
  }
  ship_events();
  outcome_ = failed_;
  over_.store(true, std::memory_order_release);
  shared_.token.news().change_and_wake();
  return true;
}

void EngineLoop::close(const Status& why) {
  try {
    end_all(why);
  } catch (const std::exception& error) {
    // Nobody is left who could be told; what is in flight stays so.
    warn(std::string("the session was closed while its engine was broken: ") + error.what());
  }
}

void EngineLoop::end_all(const Status& why) {
  const bool said = !failed_.ok();
  fail(why, false);
  const TimePoint deadline = Clock::now() + kLastWords;
  while (turn() || !over()) {
  }
  auto* plane = options_.control_plane;
  while (said && plane != nullptr && plane->pending() && Clock::now() < deadline) {
    plane->progress();
    [[maybe_unused]] const auto polled = options_.wait_set->poll(Clock::now() + std::chrono::milliseconds(10));
  }
}

}  // namespace distrun::engine
