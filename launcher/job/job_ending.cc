#include "launcher/job/job_ending.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/job/job_running.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/errors/interrupts_folded.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/descendants.h"

namespace distrun::launcher {

JobEnding::JobEnding(AgentLinks& agents, RankMonitor& ranks, Input& input, RankOutput& output, bool started,
                     std::vector<pid_t> not_ours, std::string hint)
    : agents_(agents),
      ranks_(ranks),
      input_(input),
      output_(output),
      started_(started),
      existing_children_(std::move(not_ours)),
      hint_(std::move(hint)) {}

Result<bool> JobEnding::on(AgentLink& agent, const Frame& frame) {
  if (!started_) return on_before_start(frame);
  switch (static_cast<FromAgent>(frame.type)) {
    case FromAgent::kDrained:
      if (const auto rank = ranks_.drained(frame)) drained(*rank);
      return true;
    case FromAgent::kInputTaken:
      return with(decode<InputTaken>(frame.payload),
                  [&](const InputTaken& answer) { input_.taken(agent.index, answer); });
    case FromAgent::kRefused:
      return with(decode<Refused>(frame.payload),
                  [this](const Refused& why) { ranks_.break_off(why.exit_code, why.text); });
    case FromAgent::kHostFailed:
      return true;
    default:
      return ranks_.on(agent, frame);
  }
}

// Accepts late answers, which are not needed any more.
Result<bool> JobEnding::on_before_start(const Frame& frame) const {
  const auto type = static_cast<FromAgent>(frame.type);
  return type == FromAgent::kPrepared || type == FromAgent::kRefused || type == FromAgent::kProbed ||
         type == FromAgent::kResolved || type == FromAgent::kHostFailed;
}

void JobEnding::drained(int rank) {
  output_.finish(rank, Clock::now());
  if (ranks_.verdict().rank_failed() && ranks_.verdict().failure()->rank == rank) report_first_cause();
}

void JobEnding::on_lost(AgentLink& agent) {
  if (started_) ranks_.hosts_lost(loss_of(agent));
}

// An agent that was lost while its job was being ended is not reported.
void JobEnding::on_explained(AgentLink& agent) {
  if (!started_ || agent.state == AgentLink::State::kLostInEnding) return;
  const HostLoss loss = loss_of(agent);
  output_.print(loss_report(loss, ranks_.members()));
  ranks_.hosts_lost(loss);  // again, now with the reason
}

void JobEnding::on_silent(const HostLoss& loss) {
  if (started_) ranks_.hosts_lost(loss);
}

void JobEnding::tick(TimePoint) {
  if (!started_) drop_unanswered();
}

// The job ends before its ranks have started. It does not wait for hosts that have not answered.
void JobEnding::drop_unanswered() {
  for (const auto& agent : agents_.all()) {
    if (agent->state == AgentLink::State::kAsked && !agent->over()) agent->drop();
  }
}

// Normally no process is left. When an agent has died, the kernel has made its processes children of this one (a
// subreaper). They are ended here.
bool JobEnding::finished(TimePoint now) {
  if (!agents_.all_over() || !agents_.mpi_has_printed(now)) return false;
  if (swept_) return true;
  const std::vector<ProcessInfo> rest = descendants(existing_children_);
  sweep_.kill_now(now);
  const Ending::Actions actions = sweep_.next({.started = true, .any_child = !rest.empty(), .now = now});
  if (actions.kill_all) signal_processes(rest, SIGKILL);
  if (actions.give_up) output_.print(unkillable(rest));
  swept_ = actions.done || actions.give_up;
  if (swept_ && agents_.any_lost()) end_abandoned_cgroups("/");
  return swept_;
}

std::optional<FailureReport> JobEnding::failure() const {
  std::optional<FailureReport> out = ranks_.verdict().failure();
  if (!out) return std::nullopt;
  if (out->rank >= 0) add_output(*out);
  out->followers = followers();
  out->hang = ranks_.hangs().facts();
  out->exit_code = ranks_.verdict().exit_code();
  return out;
}

// Adds the facts that only the output of the rank has.
void JobEnding::add_output(FailureReport& report) const {
  report.last_lines = output_.last_lines(report.rank);
  const auto raised = output_.last_exception(report.rank);
  const bool in_framework = report.cause.kind == CauseKind::kExited
                                ? raised && raised->in_library
                                : report.cause.kind == CauseKind::kKilled && output_may_explain(report.cause);
  if (in_framework) report.hint = hint_;
  if (report.cause.kind != CauseKind::kExited || !raised) return;
  report.cause.exception = exception_with_place(printable(raised->text), raised->place);
  if (report.place.file.empty()) report.place = raised->place;
}

void JobEnding::report_first_cause() {
  if (std::exchange(reported_, true)) return;
  FailureReport report = *ranks_.verdict().failure();
  add_output(report);
  report.exit_code = ranks_.verdict().exit_code();
  report.hang = ranks_.hangs().facts();
  report.last_lines_shown = output_.shows_last_lines(report.rank);
  output_.print(first_cause_report(report));
}

std::vector<Follower> JobEnding::followers() const {
  std::vector<Follower> out;
  const int first = ranks_.verdict().failure() ? ranks_.verdict().failure()->rank : -1;
  for (int rank = 0; rank < ranks_.members().size(); ++rank) {
    const auto& end = ranks_.verdict().end_of(rank);
    if (rank == first || !end || (end->signal == 0 && end->exit_code == 0)) continue;
    out.push_back({.rank = rank,
                   .cause = cause_of_end(end->signal, end->exit_code, end->out_of_memory),
                   .last_line = output_.last_word(rank),
                   .ended_by_us = end->by_agent});
    if (first >= 0) out.back().relation = relation_of(out.back());
    const auto raised = output_.last_exception(rank);
    if (out.back().relation == Follower::Relation::kOther) {
      out.back().cause.exception = exception_with_place(printable(raised->text), raised->place);
    }
  }
  return out;
}

// Ranks that fail by themselves, at nearly the same time as the first one, do not follow from it. If an operation has
// failed, it is the operation of all of them.
Follower::Relation JobEnding::relation_of(const Follower& follower) const {
  using Relation = Follower::Relation;
  const FailureReport& first = *ranks_.verdict().failure();
  const CauseKind kind = first.cause.kind;
  const bool by_itself = kind == CauseKind::kExited || kind == CauseKind::kRaised || kind == CauseKind::kKilled;
  if (!by_itself || !first.tensor.empty()) return Relation::kFollows;
  const auto own = output_.last_exception(follower.rank);
  const auto of_first = output_.last_exception(first.rank);
  const bool same_exception = own && of_first && own->text == of_first->text;
  // A signal of the launcher may come after the traceback of a rank, and before its end.
  if (follower.ended_by_us) return same_exception ? Relation::kSame : Relation::kFollows;
  const bool same_end = kind == CauseKind::kRaised
                            ? same_exception
                            : follower.cause.kind == kind && follower.cause.signal == first.cause.signal &&
                                  follower.cause.exit_code == first.cause.exit_code;
  if (same_end && output_may_explain(follower.cause) && !follower.last_line.empty() &&
      follower.last_line == output_.last_word(first.rank)) {
    return Relation::kSame;
  }
  const bool knows_first = ranks_.verdict().sessions().had(follower.rank);
  return own && !knows_first && follower.cause.kind == CauseKind::kExited ? Relation::kOther : Relation::kFollows;
}

// Python that has just started dies of the signal before it can print a traceback.
std::vector<int> JobEnding::interrupted_early() const {
  std::vector<int> out = output_.interrupted();
  if (out.empty()) return out;
  for (int rank = 0; rank < ranks_.members().size(); ++rank) {
    const auto& end = ranks_.verdict().end_of(rank);
    if (end && end->signal == SIGINT && !end->wrote && !ranks_.verdict().sessions().had(rank)) out.push_back(rank);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void JobEnding::report_end(bool keep_back) {
  const auto& failure = ranks_.verdict().failure();
  const bool host_lost =
      failure && (failure->cause.kind == CauseKind::kHostLost || failure->cause.kind == CauseKind::kOwnNetwork ||
                  failure->cause.kind == CauseKind::kNetworkBroken || failure->cause.kind == CauseKind::kCarrierLost);
  if (const auto early = interrupted_early(); !early.empty()) output_.print(interrupted_text(early));
  if (ranks_.verdict().rank_failed()) report_first_cause();
  if (!ranks_.verdict().rank_failed()) output_.print(exceptions_text(ranks_.hangs().facts()));
  if (!ranks_.verdict().rank_failed() && !host_lost) return output_.show_kept_back(-1, Clock::now());
  for (int rank = 0; rank < ranks_.members().size(); ++rank) {
    const auto& end = ranks_.verdict().end_of(rank);
    if (rank == failure->rank || !end || end->signal != 0 || end->exit_code != 0) continue;
    output_.show_kept_back(rank, Clock::now());
  }
  output_.print(follow_up_report(followers(), keep_back, failure->cause.link.has_value()));
}

}  // namespace distrun::launcher
