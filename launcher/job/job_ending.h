// The last state of a job. Its ranks end by themselves or are ended, no process of it is left behind, and the user is
// shown what happened.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ending.h"
#include "launcher/job/agents/agent_links.h"
#include "launcher/job/agents/job_state.h"
#include "launcher/job/input.h"
#include "launcher/job/ranks/rank_monitor.h"
#include "launcher/job/ranks/rank_output.h"
#include "launcher/report/failure_report.h"

namespace distrun::launcher {

class JobEnding final : public JobState {
 public:
  // All arguments must outlive it. `started`: ranks exist or have existed. `not_ours`: children that this process had
  // before the job. `hint`: why ranks fail inside their framework, if the plan knows it.
  JobEnding(AgentLinks& agents, RankMonitor& ranks, Input& input, RankOutput& output, bool started,
            std::vector<pid_t> not_ours, std::string hint = {});

  Result<bool> on(AgentLink& agent, const Frame& frame) override;
  void on_lost(AgentLink& agent) override;
  void on_explained(AgentLink& agent) override;
  void on_silent(const HostLoss& loss) override;
  void tick(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> deadline() const override { return sweep_.deadline(); }

  // True if all agents have ended and no process of the job is left. The caller must have reaped the children before.
  bool finished(TimePoint now);
  // Shows the first cause, if that has not been done, and the follow-up failures. `keep_back`: the output has kept the
  // follow-up errors back.
  void report_end(bool keep_back);
  // The failure as known now; none: nothing failed.
  [[nodiscard]] std::optional<FailureReport> failure() const;

 private:
  Result<bool> on_before_start(const Frame& frame) const;
  void drop_unanswered();
  void drained(int rank);
  void add_output(FailureReport& report) const;
  void report_first_cause();
  [[nodiscard]] std::vector<int> interrupted_early() const;
  [[nodiscard]] std::vector<Follower> followers() const;
  [[nodiscard]] Follower::Relation relation_of(const Follower& follower) const;

  AgentLinks& agents_;
  RankMonitor& ranks_;
  Input& input_;
  RankOutput& output_;
  const bool started_;
  const std::vector<pid_t> existing_children_;
  const std::string hint_;
  Ending sweep_{Duration::zero()};  // ends the processes that are left when the agents are gone
  bool swept_ = false;
  bool reported_ = false;  // the first cause has been shown
};

}  // namespace distrun::launcher
