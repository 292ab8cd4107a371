#include "launcher/job/verdict.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/report/failure_report.h"

namespace distrun::launcher {
Verdict::Verdict(Config config) : config_(std::move(config)), ranks_(config_.hosts.size()) {}

std::uint32_t Verdict::grace_ms() const { return static_cast<std::uint32_t>(config_.grace * 1000); }

void Verdict::started(const RankStarted& event) {
  if (known(event.rank)) at(event.rank).pid = event.pid;
}

const std::optional<RankExited>& Verdict::end_of(int rank) const {
  return ranks_.at(static_cast<std::size_t>(rank)).end;
}

// Ranks that use the runtime learn of the failure from it and get half of the grace period to end by themselves, to
// save what they want to save. The others know nothing and are ended at once.
Stop Verdict::stop_after_failure() const {
  Stop out{.term_after = grace_ms() / 2, .kill_after = grace_ms()};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].in_session() && !ranks_[i].end) out.term_now.push_back(static_cast<int>(i));
  }
  return out;
}

JobActions Verdict::fail(int rank, net::JobEvent event) {
  event.rank = rank;
  event.host = config_.hosts[static_cast<std::size_t>(rank)];
  failure_ = Failure{.rank = rank,
                     .pid = at(rank).pid,
                     .left_early = event.kind == net::JobEvent::Kind::kRankLeft,
                     .cause = event.cause};
  ending_ = true;
  told_ = event.kind == net::JobEvent::Kind::kRankFailed;
  JobActions out{.publish = event, .stop = stop_after_failure(), .failure_known = true};
  // A rank that says why it ends is ending: it is not to be disturbed.
  std::erase(out.stop->term_now, rank);
  return out;
}

// A rank that has exited with 0 is missed by each rank that is in a session which the first has not ended: it never
// came, came one time less, or came and did not leave.
JobActions Verdict::look_for_early_leaver() {
  if (ending_) return {};
  int session = 0;  // the latest that some rank is in
  for (const Rank& rank : ranks_) {
    if (rank.in_session()) session = std::max(session, rank.joins);
  }
  if (session == 0) return {};
  for (std::size_t gone = 0; gone < ranks_.size(); ++gone) {
    const Rank& rank = ranks_[gone];
    if (!rank.end || rank.end->exit_code != 0 || rank.end->signal != 0) continue;
    if (rank.joins <= rank.leaves && rank.joins >= session) continue;
    return fail(static_cast<int>(gone), {.kind = net::JobEvent::Kind::kRankLeft,
                                         .cause = "exited with code 0 while other ranks still need it"});
  }
  return {};
}

bool Verdict::any_in_session() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.in_session(); });
}

JobActions Verdict::joined(int rank) {
  if (!known(rank)) return {};
  ++at(rank).joins;
  JobActions out = look_for_early_leaver();
  return ending_ ? out : runs_on(rank);
}

JobActions Verdict::left(int rank) {
  if (known(rank)) at(rank).leaves = at(rank).joins;
  return {};
}

JobActions Verdict::reported(int rank, const std::string& cause) {
  if (ending_ || !known(rank) || at(rank).end) return {};
  return fail(rank, {.kind = net::JobEvent::Kind::kRankFailed, .exit_code = 1, .cause = cause});
}

JobActions Verdict::left_early(int rank, const std::string& cause) {
  if (ending_ || !known(rank)) return {};
  return fail(rank, {.kind = net::JobEvent::Kind::kRankLeft, .cause = cause});
}

JobActions Verdict::stalled(int rank, const std::string& cause) {
  if (ending_ || !known(rank) || at(rank).end) return {};
  return fail(rank, {.kind = net::JobEvent::Kind::kRankFailed, .cause = "held the others up: " + cause});
}

void Verdict::cut_off(int rank, std::uint64_t round) {
  if (!known(rank) || at(rank).end) return;
  at(rank).cut_off = true;
  at(rank).seen_in = round;
}

JobActions Verdict::runs_on(int rank) {
  if (known(rank)) at(rank).cut_off = false;
  return judge_held();
}

// For the end of a rank whose connection ended before that of `rank`, and of which this one may be a consequence.
bool Verdict::waits_for_news(int rank) const {
  const std::uint64_t seen_in = ranks_[static_cast<std::size_t>(rank)].seen_in;
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const Rank& other) { return other.cut_off && other.seen_in < seen_in; });
}

JobActions Verdict::judge_held() {
  if (ending_) return {};
  const auto known_by_now = [this](const RankExited& event) { return !waits_for_news(event.rank); };
  const auto first = std::find_if(held_.begin(), held_.end(), known_by_now);
  return first == held_.end() ? JobActions{} : fail_by_exit(*first);
}

JobActions Verdict::exited(const RankExited& event, std::uint64_t round) {
  if (!known(event.rank)) return {};
  Rank& rank = at(event.rank);
  if (!std::exchange(rank.cut_off, false)) rank.seen_in = round;
  rank.end = event;
  rank.pid = event.pid;
  // It left in good order, others missed it, and only now its code tells that it had failed: sys.exit(3) leaves first.
  if (failure_ && failure_->rank == event.rank && failure_->left_early && !event.by_agent &&
      (event.signal != 0 || event.exit_code != 0)) {
    failure_->left_early = false;
    failure_->cause = cause_of_end(event.signal, event.exit_code, event.out_of_memory);
  }
  const bool ended_server = servers_ended_ && config_.servers.contains(event.rank);
  if (ended_server) rank.end->by_agent = true;
  if (ending_ || ended_server) return {};
  if (event.signal == 0 && event.exit_code == 0) {
    JobActions out = look_for_early_leaver();
    if (ending_) return out;
    if (!held_.empty()) return judge_held();
    if (config_.clients.contains(event.rank) && clients_ended()) end_servers(out);
    return out;
  }
  if (waits_for_news(event.rank)) {
    held_.push_back(event);
    return {};
  }
  return fail_by_exit(event);
}

JobActions Verdict::fail_by_exit(const RankExited& event) {
  std::string cause = cause_of_end(event.signal, event.exit_code, event.out_of_memory);
  if (event.by_agent) cause += " by its agent, which something other than distrun told to end (scancel?)";
  // Nobody here asked for it, so it is the first cause and gives the exit code.
  at(event.rank).end->by_agent = false;
  return fail(event.rank, {.kind = net::JobEvent::Kind::kRankFailed,
                           .signal = event.signal,
                           .exit_code = event.exit_code,
                           .cause = std::move(cause)});
}

bool Verdict::clients_ended() const {
  return std::all_of(config_.clients.begin(), config_.clients.end(),
                     [this](int rank) { return end_of(rank).has_value(); });
}

void Verdict::end_servers(JobActions& out) {
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

bool Verdict::insists(int signal, TimePoint now) const {
  if (!interrupted_ || signal == SIGHUP) return false;
  return (signal == SIGINT && typed_) || now - *interrupted_ >= kTogether;
}

// Ctrl-C reaches ranks as itself, which is an exception in Python; who does not end of it gets TERM and KILL as ever.
JobActions Verdict::interrupted(int signal, TimePoint now) {
  insisted_ = insisted_ || insists(signal, now);
  JobActions out{.stop = Stop{.kill_after = insisted_ ? 0 : grace_ms()}};
  if (!ending_) fixed_code_ = exit_code::kSignalBase + signal;
  if (!ending_ && signal == SIGINT) {
    out.interrupt_ranks = true;
    out.stop->term_after = grace_ms() / 2;
  }
  if (!interrupted_) interrupted_ = now;
  typed_ = typed_ || signal == SIGINT;
  ending_ = true;
  return out;
}

JobActions Verdict::timed_out() {
  if (ending_) return {};
  return broken(exit_code::kTimeout);
}

JobActions Verdict::reader_gone() {
  if (ending_) return {};
  return broken(exit_code::kReaderGone);
}

JobActions Verdict::broken(int code) {
  if (!ending_) fixed_code_ = code;
  ending_ = true;
  return {.stop = Stop{.kill_after = grace_ms()}};
}

JobActions Verdict::host_lost(int host, const std::string& cause) {
  JobActions out = ending_ ? JobActions{} : broken(exit_code::kHostLost);
  if (out.stop) *out.stop = stop_after_failure();
  for (std::size_t i = 0; i < ranks_.size() && !told_; ++i) {
    if (config_.host_of[i] != host || ranks_[i].end) continue;
    told_ = true;
    out.publish = net::JobEvent{.kind = net::JobEvent::Kind::kRankFailed,
                                .rank = static_cast<int>(i),
                                .host = config_.hosts[i],
                                .cause = cause};
  }
  return out;
}

int Verdict::code_of_failure() const {
  if (failure_->left_early) return exit_code::kRankLeft;
  const auto& end = end_of(failure_->rank);
  if (end && !end->by_agent && end->signal != 0) return exit_code::kSignalBase + end->signal;
  if (end && end->signal == 0 && end->exit_code != 0) return end->exit_code;
  // It said that it failed, but did not end by itself with a code.
  return 1;
}

int Verdict::exit_code() const {
  if (fixed_code_) return *fixed_code_;
  return failure_ ? code_of_failure() : 0;
}

}  // namespace distrun::launcher
