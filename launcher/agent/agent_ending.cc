// The agent's second half: children that ended, and how the rest is ended.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "launcher/agent/agent.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/descendants.h"

namespace distrun::launcher {
namespace {

bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

// Everything below this process that is not a rank itself nor one of `except`.
std::vector<ProcessInfo> rest_of(const std::map<int, RankProcess>& ranks, const std::vector<pid_t>& except) {
  std::vector<ProcessInfo> out;
  for (ProcessInfo& process : descendants(except)) {
    bool is_rank = false;
    for (const auto& [number, rank] : ranks) is_rank |= rank.process().running() && rank.process().pid() == process.pid;
    if (!is_rank && process.state != 'Z') out.push_back(std::move(process));
  }
  return out;
}

}  // namespace

void Agent::reap() {
  bool none_left = false;
  const std::vector<Reaped> children = reap_children(none_left);
  if (std::any_of(children.begin(), children.end(), [](const Reaped& one) { return killed(one.status); })) {
    // One look for all of them: when memory runs out, several may go at once.
    out_of_memory_ = oom_kills_.of_late(Clock::now());
  }
  for (const Reaped& child : children) {
    if (starter_ && starter_->ended(child.pid, child.status)) continue;
    for (auto& [number, rank] : ranks_) {
      if (!rank.process().running() || rank.process().pid() != child.pid) continue;
      rank.process().reaped();
      rank_ended(rank, child.status);
    }
  }
  any_child_ = !none_left;
  const std::vector<pid_t> carrying = carriers();
  carriers_only_ = any_child_ && !carrying.empty() && descendants(carrying).empty();
  tell_failed_hosts();
}

void Agent::rank_ended(RankProcess& rank, int status) {
  // The report is complete when its writer is gone; a rank that could not run its program did not "exit with 127".
  check_exec(rank);
  RankExited message{.rank = rank.rank(), .pid = rank.process().pid()};
  if (WIFSIGNALED(status)) {
    message.signal = WTERMSIG(status);
    message.by_agent = terminated_ && (message.signal == SIGTERM || message.signal == SIGKILL);
    message.out_of_memory = killed(status) && !message.by_agent && out_of_memory_;
  } else {
    message.exit_code = WEXITSTATUS(status);
  }
  if (!dismissed_.contains(rank.rank())) {
    failed(message.signal != 0 ? exit_code::kSignalBase + message.signal : message.exit_code);
  }
  send(FromAgent::kExited, message);
  undrained_.insert(rank.rank());
}

// A rank's last output follows its exit, because the news of a death must not wait for a full pipe.
void Agent::report_drained() {
  bool all_closed = true;
  for (auto& [number, rank] : ranks_) {
    if (!undrained_.contains(number) && !done_) continue;
    // With no process left that could write, an empty pipe is at its end.
    rank.drain(forward_output(), done_);
    all_closed = all_closed && (!done_ || rank.closed());
    if (!rank.drained() || undrained_.erase(number) == 0) continue;
    net::WireWriter writer;
    writer.i32(number);
    head_.send(static_cast<std::uint8_t>(FromAgent::kDrained), writer.view());
  }
  if (!done_ || (!all_closed && !head_.closed())) return;
  head_.send(static_cast<std::uint8_t>(FromAgent::kDone), {});
  finished_ = true;
}

void Agent::act(const Ending::Actions& actions) {
  for (auto& [number, rank] : ranks_) {
    if (actions.term_all_ranks || actions.term_ranks.contains(number)) {
      terminated_ = true;
      rank.process().signal_group(SIGTERM);
      // A stopped process would get the signal only when somebody lets it go on.
      rank.process().signal_group(SIGCONT);
    }
  }
  if (actions.left_behind) tell_left_behind();
  if (actions.term_rest) signal_processes(rest_of(ranks_, carriers()), SIGTERM);
  if (actions.kill_all) {
    kill_everything();
    // Some cannot be killed at once; the head is to know that somebody tries.
    head_.send(static_cast<std::uint8_t>(FromAgent::kAlive), {});
  }
  if (actions.give_up) {
    note("host " + job_->host + ": " + unkillable(descendants()));
  }
  done_ = actions.done || actions.give_up;
}

void Agent::tell_left_behind() {
  const std::vector<ProcessInfo> rest = rest_of(ranks_, carriers());
  if (rest.empty()) return;
  note("all ranks on host " + job_->host + " have ended, but not what they started; it gets " +
       seconds_text(job_->grace) + " s, then TERM, then KILL: " + describe(rest));
}

void Agent::tell_abandoned(const std::vector<pid_t>& processes) {
  if (processes.empty()) return;
  note("host " + job_->host + ": processes of an earlier job, whose agent was killed, were still here and have been " +
       "ended: pid " + ranges({processes.begin(), processes.end()}));
}

void Agent::kill_everything() {
  // The job goes on elsewhere: what carries its agents is none of what ranks have left here.
  if (const auto carrying = carriers(); !ending_.ordered() && !carrying.empty()) {
    signal_processes(rest_of(ranks_, carrying), SIGKILL);
    return;
  }
  terminated_ = true;
  for (auto& [number, rank] : ranks_) rank.process().signal_group(SIGKILL);
  cgroup_.kill();
  signal_processes(descendants(), SIGKILL);
}

}  // namespace distrun::launcher
