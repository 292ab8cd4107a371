// The second state of a job: its ranks run without a failure.
#pragma once

#include <optional>
#include <string>

#include "launcher/job/agents/job_state.h"
#include "launcher/job/input.h"
#include "launcher/job/ranks/rank_monitor.h"
#include "launcher/job/ranks/rank_output.h"

namespace distrun::launcher {

class JobRunning final : public JobState {
 public:
  // All arguments must outlive it. `stop_limit` is as in EndOptions, `preempt_signal` as in JobConfig.
  // `hint`: why ranks fail inside their framework, if the plan knows it.
  JobRunning(RankMonitor& ranks, Input& input, RankOutput& output, std::optional<double> stop_limit, int preempt_signal,
             std::string hint = {});

  // Ranks have been asked to stop by themselves. They get the time of --grace, if it was given.
  void give_grace(const std::string& why, TimePoint now);

  Result<bool> on(AgentLink& agent, const Frame& frame) override;
  void on_lost(AgentLink& agent) override;
  void on_explained(AgentLink& agent) override;
  void on_silent(const HostLoss& loss) override;
  void tick(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> deadline() const override { return stop_by_; }
  [[nodiscard]] const std::string& hint() const { return hint_; }

 private:
  RankMonitor& ranks_;
  Input& input_;
  RankOutput& output_;
  const std::optional<double> stop_limit_;
  const int preempt_signal_;
  const std::string hint_;
  std::optional<TimePoint> stop_by_;  // deadline for ranks that were asked to stop
};

// The message about lost hosts or a lost agent.
std::string loss_report(const HostLoss& loss, const Membership& members);

}  // namespace distrun::launcher
