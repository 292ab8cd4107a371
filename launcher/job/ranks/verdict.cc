#include "launcher/job/ranks/verdict.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace distrun::launcher {
namespace {

// For a rank that has exited with 0.
Cause left_early_cause(const Sessions& sessions, int rank) {
  Leave how = sessions.joins(rank) < sessions.latest() ? Leave::kNoNextInit : Leave::kEnded;
  if (!sessions.has_left(rank)) how = Leave::kNoShutdown;
  if (sessions.joins(rank) == 0) how = Leave::kNoInit;
  return {.kind = CauseKind::kLeftEarly, .leave = how, .text = text_of(how)};
}

// The text for ranks, which may run on another machine than the launcher.
constexpr const char* kNetworkOfLauncher = "the network of the launcher's machine is gone";

template <class List, class Item>
bool among(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

Verdict::Verdict(Config config)
    : config_(std::move(config)),
      ranks_(config_.hosts.size()),
      sessions_(config_.hosts.size()),
      order_(config_.hosts.size()) {}

std::uint32_t Verdict::grace_ms() const { return static_cast<std::uint32_t>(config_.grace * 1000); }

void Verdict::started(const RankStarted& event) {
  if (known(event.rank)) at(event.rank).pid = event.pid;
}

const std::optional<RankExited>& Verdict::end_of(int rank) const {
  return ranks_.at(static_cast<std::size_t>(rank)).end;
}

// Ranks that use the runtime learn of the failure through it. They get half of the grace period to end by themselves,
// so that they can save their state. The other ranks do not learn of it and get TERM at once.
Stop Verdict::stop_after_failure() const {
  Stop out{.term_after = grace_ms() / 2, .kill_after = grace_ms()};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (!sessions_.has(rank) && !ranks_[i].end) out.term_now.push_back(rank);
  }
  return out;
}

JobActions Verdict::fail(int rank, Cause cause, const net::RankFailure& reported) {
  using Kind = net::JobEvent::Kind;
  const bool left = cause.kind == CauseKind::kLeftEarly;
  const auto& end = end_of(rank);
  failure_ = FailureReport{.rank = rank,
                           .host = config_.hosts[static_cast<std::size_t>(rank)],
                           .pid = at(rank).pid,
                           .cause = cause,
                           .tensor = reported.tensor,
                           .place = reported.place};
  ending_ = true;
  loss_published_ = !left;
  JobActions out{.publish = net::JobEvent{.kind = left                               ? Kind::kRankLeft
                                                  : cause.kind == CauseKind::kRaised ? Kind::kRankRaised
                                                                                     : Kind::kRankFailed,
                                          .rank = rank,
                                          .signal = cause.signal,
                                          .exit_code = cause.kind == CauseKind::kRaised ? 1 : cause.exit_code,
                                          .host = failure_->host,
                                          .cause = text_of(cause),
                                          .explained_by_output = end && end->wrote && output_may_explain(cause)},
                 .stop = stop_after_failure(),
                 .failure_known = true};
  // A rank that has reported its error is already ending. It gets no TERM now.
  std::erase(out.stop->term_now, rank);
  return out;
}

// Finds a rank that has exited with 0 although others need it.
JobActions Verdict::look_for_early_leaver() {
  const int session = ending_ ? 0 : sessions_.latest();
  for (std::size_t i = 0; i < ranks_.size() && session != 0; ++i) {
    const int rank = static_cast<int>(i);
    const auto& end = ranks_[i].end;
    if (!end || end->exit_code != 0 || end->signal != 0 || order_.is_missing(rank)) continue;
    if (sessions_.needs(rank, session)) return fail(rank, left_early_cause(sessions_, rank));
  }
  return {};
}

JobActions Verdict::joined(int rank) {
  if (!known(rank)) return {};
  sessions_.joined(rank);
  JobActions out = look_for_early_leaver();
  if (interrupts_.take_starting(rank)) out.interrupt_again.push_back(rank);
  return ending_ ? out : runs_on(rank);
}

JobActions Verdict::left(int rank) {
  if (known(rank)) sessions_.left(rank);
  return {};
}

JobActions Verdict::reported(int rank, const net::RankFailure& failure) {
  if (ending_ || !known(rank) || at(rank).end || order_.is_missing(rank)) return {};
  return fail(rank, {.kind = CauseKind::kRaised, .text = failure.cause}, failure);
}

JobActions Verdict::left_early(int rank, const net::RankFailure& failure) {
  if (ending_ || !known(rank)) return {};
  return fail(
      rank,
      {.kind = CauseKind::kLeftEarly, .leave = at(rank).end ? Leave::kEnded : Leave::kRanOn, .text = failure.cause},
      failure);
}

void Verdict::disconnected(int rank, std::uint64_t round) {
  if (known(rank) && !at(rank).end) order_.disconnected(rank, round);
}

void Verdict::misses(int rank) {
  if (known(rank)) order_.misses(rank);
}

JobActions Verdict::blame(const std::optional<Blame>& found) {
  if (ending_) return {};
  if (!found) {
    order_.no_cause_found();
    JobActions out = judge_held();
    return ending_ ? out : look_for_early_leaver();
  }
  FailureReport failure = found->failure;
  if (failure.rank >= 0) {
    // If it has exited with 0, its connection ended because it left. A stall ended the session before it left.
    const auto& end = end_of(failure.rank);
    const bool left = end && end->signal == 0 && end->exit_code == 0;
    if (left && failure.cause.kind == CauseKind::kLinkEnded) failure.cause = left_early_cause(sessions_, failure.rank);
    return fail(failure.rank, failure.cause, {.tensor = failure.tensor, .place = failure.place});
  }
  const std::string text = text_of(failure.cause);
  failure_ = std::move(failure);
  ending_ = loss_published_ = true;
  return {.publish = net::JobEvent{.kind = net::JobEvent::Kind::kHostsFailed,
                                   .rank = found->lost,
                                   .host = config_.hosts.at(static_cast<std::size_t>(found->lost)),
                                   .cause = text},
          .stop = stop_after_failure(),
          .failure_known = true};
}

JobActions Verdict::runs_on(int rank) {
  if (known(rank)) order_.runs_on(rank);
  return judge_held();
}

JobActions Verdict::judge_held() {
  const auto first = ending_ ? std::nullopt : order_.first_cause();
  return first ? fail_by_exit(*first) : JobActions{};
}

JobActions Verdict::exited(const RankExited& event, std::uint64_t round) {
  if (!known(event.rank)) return {};
  Rank& rank = at(event.rank);
  order_.exited(event.rank, round);
  rank.end = event;
  sessions_.ended(event.rank);
  rank.pid = event.pid;
  // The rank left its session, others missed it, and only now its exit shows that it had failed: sys.exit(3) leaves
  // first.
  if (failure_ && failure_->rank == event.rank && failure_->cause.kind == CauseKind::kLeftEarly && !event.by_agent) {
    const bool failed = event.signal != 0 || event.exit_code != 0;
    if (failure_->cause.leave == Leave::kRanOn) failure_->cause.leave = Leave::kEnded;
    if (failed) failure_->cause = cause_of_end(event.signal, event.exit_code, event.out_of_memory);
  }
  const bool ended_server = servers_ended_ && config_.servers.contains(event.rank);
  if (ended_server) rank.end->by_agent = true;
  if (ending_ || ended_server) return {};
  if (event.signal == 0 && event.exit_code == 0) {
    JobActions out = look_for_early_leaver();
    if (ending_) return out;
    if (order_.holds_any()) return judge_held();
    if (config_.clients.contains(event.rank)) end_servers(out);
    return out;
  }
  if (order_.may_follow(event.rank)) {
    order_.hold(event);
    return {};
  }
  return fail_by_exit(event);
}

JobActions Verdict::fail_by_exit(const RankExited& event) {
  Cause cause = cause_of_end(event.signal, event.exit_code, event.out_of_memory);
  cause.by_other = event.by_agent;
  // The launcher did not order this end, so it is the first cause and gives the exit code.
  at(event.rank).end->by_agent = false;
  return fail(event.rank, std::move(cause));
}

// Ends the servers when all their clients have ended.
void Verdict::end_servers(JobActions& out) {
  const auto has_ended = [this](int rank) { return end_of(rank).has_value(); };
  if (!std::all_of(config_.clients.begin(), config_.clients.end(), has_ended)) return;
  servers_ended_ = true;
  out.end_ranks = servers_left();
}

std::vector<int> Verdict::servers_left() const {
  std::vector<int> out;
  for (const int rank : config_.servers) {
    if (!end_of(rank)) out.push_back(rank);
  }
  return out;
}

// Ctrl-C is passed to ranks as SIGINT, which is an exception in Python. A rank that does not end on it gets TERM and
// KILL.
JobActions Verdict::interrupted(int signal, TimePoint now) {
  if (interrupts_.passed_on(signal, now)) return {};
  interrupts_.take(signal, now);
  const bool first = !ending_;
  JobActions out = end_by({.kind = CauseKind::kInterrupted, .signal = signal}, exit_code::kSignalBase + signal);
  if (interrupts_.repeated()) out.stop->kill_after = 0;
  if (first && signal == SIGINT) {
    out.interrupt_ranks = true;
    for (int rank = 0; known(rank); ++rank) {
      if (!sessions_.has(rank)) interrupts_.add_starting(rank);
    }
    out.stop->term_after = grace_ms() / 2;
  }
  return out;
}

JobActions Verdict::timed_out(const std::string& why) {
  if (ending_) return {};
  return end_by({.kind = CauseKind::kTimedOut, .text = why}, exit_code::kTimeout);
}

JobActions Verdict::reader_gone() {
  if (ending_) return {};
  return end_by({.kind = CauseKind::kReaderGone}, exit_code::kReaderGone);
}

JobActions Verdict::broken(int code, const std::string& why) {
  const bool started = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid != 0; });
  return end_by({.kind = started ? CauseKind::kBrokenOff : CauseKind::kNotStarted, .text = why}, code);
}

// Ends all ranks for a reason outside them. Keeps an earlier reason.
JobActions Verdict::end_by(Cause cause, int code) {
  if (!ending_) failure_ = FailureReport{.cause = std::move(cause), .exit_code = code};
  ending_ = true;
  return {.stop = Stop{.kill_after = grace_ms()}};
}

JobActions Verdict::hosts_lost(const std::vector<int>& hosts, const Cause& cause) {
  JobActions out;
  std::vector<std::string> names;
  const bool by_name = cause.kind == CauseKind::kHostLost || cause.kind == CauseKind::kOwnNetwork;
  for (std::size_t i = 0; i < ranks_.size() && by_name; ++i) {
    if (!among(hosts, config_.host_of[i]) || among(names, config_.hosts[i])) continue;
    names.push_back(config_.hosts[i]);
  }
  if (!ending_) {
    out = end_by(cause, exit_code::kHostLost);
    if (!hosts.empty()) out.stop = stop_after_failure();
    failure_->host = names.size() == 1 && cause.kind == CauseKind::kHostLost ? names.front() : "";
    failure_->hosts = names;
  } else if (failure_ && failure_->cause.kind == CauseKind::kHostLost && failure_->hosts == names) {
    failure_->cause.text = cause.text;
    failure_->cause.agent_here = cause.agent_here;
  }
  for (std::size_t i = 0; i < ranks_.size() && !loss_published_; ++i) {
    if (!among(hosts, config_.host_of[i]) || ranks_[i].end) continue;
    loss_published_ = true;
    out.publish = net::JobEvent{.kind = net::JobEvent::Kind::kHostsFailed,
                                .rank = static_cast<int>(i),
                                .host = config_.hosts[i],
                                .cause = cause.kind == CauseKind::kOwnNetwork ? kNetworkOfLauncher : cause.text};
  }
  return out;
}

int Verdict::code_of_failure() const {
  if (failure_->exit_code) return *failure_->exit_code;
  if (failure_->cause.kind == CauseKind::kLeftEarly) return exit_code::kRankLeft;
  const auto& end = end_of(failure_->rank);
  const CauseKind cause = failure_->cause.kind;
  const bool blocked = cause == CauseKind::kStalled || cause == CauseKind::kDeadlock;
  // What the rank reported or was blamed for has ended the job. A crash after that, for instance in a library's
  // clean-up, is no cause: JAX 0.6 aborts a process that exits when the process of its coordinator has gone. Python
  // ends itself with SIGINT after a KeyboardInterrupt, which is its exit code.
  const bool follows = blocked || (cause == CauseKind::kRaised && end && is_crash(end->signal));
  if (end && !end->by_agent && end->signal != 0 && !follows) return exit_code::kSignalBase + end->signal;
  if (end && end->signal == 0 && end->exit_code != 0) return end->exit_code;
  // The rank reported a failure, but it did not exit with a code of its choice.
  return 1;
}

int Verdict::exit_code() const { return failure_ ? code_of_failure() : 0; }

}  // namespace distrun::launcher
