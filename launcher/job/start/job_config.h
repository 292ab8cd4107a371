// The request for a job, from the command line, its settings and the hosts. It does not change while the job runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/start/start_queue.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/report/output.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// The part that depends on the hosts that get ranks.
struct JobLayout {
  PlanRequest plan;  // without the store address, which the job adds
  JobCommon common;
  OutputConfig output;
  bool several_machines = false;  // some host is not this machine, so addresses are probed
};

struct JobConfig : JobLayout {
  [[nodiscard]] const Options& options() const { return plan.options; }
  int preempt_signal = 0;           // 0: none
  double host_timeout = 30;         // seconds, the setting
  double start_timeout = 300;       // the same; the limit for agents that connect by themselves
  std::optional<TimePoint> end_by;  // when --timeout is over
  StartQueue::Limits start;
  // If set, plan.assignment.hosts holds all candidates, and they are asked for their topology. This function then
  // decides which of them get ranks, and returns the resulting layout.
  std::function<Result<JobLayout>(const std::vector<Topology>&, const JobLayout&)> assign;
};

}  // namespace distrun::launcher
