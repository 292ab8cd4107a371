#include "launcher/job/job_running.h"

#include <utility>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr int kNoRank = -1;

}  // namespace

std::string loss_report(const HostLoss& loss, const Membership& members) {
  std::vector<int> ranks;
  for (const AgentLink* const agent : loss.links) {
    const std::vector<int> there = members.ranks_on(agent->index);
    ranks.insert(ranks.end(), there.begin(), there.end());
  }
  return host_loss_report(loss.cause, ranks);
}

JobRunning::JobRunning(RankMonitor& ranks, Input& input, RankOutput& output, std::optional<double> stop_limit,
                       int preempt_signal, std::string hint)
    : ranks_(ranks),
      input_(input),
      output_(output),
      stop_limit_(stop_limit),
      preempt_signal_(preempt_signal),
      hint_(std::move(hint)) {}

void JobRunning::give_grace(const std::string& why, TimePoint now) {
  if (stop_limit_) stop_by_ = now + duration_of(*stop_limit_);
  output_.print(why + ": all ranks are to stop at the same step, and have " +
                (stop_limit_ ? seconds_text(*stop_limit_) + " s to end (--grace)"
                             : "as long to end as its sender gives them (--grace would set a limit)"));
}

Result<bool> JobRunning::on(AgentLink& agent, const Frame& frame) {
  switch (static_cast<FromAgent>(frame.type)) {
    case FromAgent::kDrained:
      if (const auto rank = ranks_.drained(frame)) output_.finish(*rank, Clock::now());
      return true;
    case FromAgent::kInputTaken:
      return with(decode<InputTaken>(frame.payload),
                  [&](const InputTaken& answer) { input_.taken(agent.index, answer); });
    case FromAgent::kRefused:
      // The agent could start only some of its ranks, so all other ranks must end too.
      return with(decode<Refused>(frame.payload),
                  [this](const Refused& why) { ranks_.break_off(why.exit_code, why.text); });
    case FromAgent::kHostFailed:
      return true;  // an agent that this one started; if it has joined, its own connection reports its end
    default:
      return ranks_.on(agent, frame);
  }
}

void JobRunning::on_lost(AgentLink& agent) {
  ranks_.hosts_lost(loss_of(agent));
  output_.keep_back_all_but(kNoRank);
}

void JobRunning::on_explained(AgentLink& agent) { output_.print(loss_report(loss_of(agent), ranks_.members())); }

void JobRunning::on_silent(const HostLoss& loss) {
  ranks_.hosts_lost(loss);
  output_.keep_back_all_but(kNoRank);
  output_.print(loss_report(loss, ranks_.members()));
}

void JobRunning::tick(TimePoint now) {
  if (!stop_by_ || now < *stop_by_) return;
  output_.print("ranks that were to stop have not ended within " + seconds_text(*stop_limit_) + " s; ending the job");
  stop_by_.reset();
  constexpr std::uint32_t kAfterTerm = 2000;
  ranks_.interrupt_soon(preempt_signal_, now, kAfterTerm);
}

}  // namespace distrun::launcher
