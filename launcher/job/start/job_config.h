// What a job is to do, as the command line, its settings and the hosts say. It does not change while the job runs.
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

// What depends on the hosts that get ranks.
struct JobLayout {
  PlanRequest plan;  // without store, which the job adds
  JobCommon common;
  OutputConfig output;
  bool several_machines = false;  // some host is not this machine: addresses are probed
};

struct JobConfig : JobLayout {
  [[nodiscard]] const Options& options() const { return plan.options; }
  int preempt_signal = 0;           // 0: none
  double host_timeout = 30;         // seconds, the setting
  std::optional<TimePoint> end_by;  // when --timeout is over
  StartQueue::Limits start;
  // Where set, all candidates are in plan.assignment.hosts and are asked what they have. This then decides which of
  // them get ranks, and returns the layout that follows from that.
  std::function<Result<JobLayout>(const std::vector<Topology>&, const JobLayout&)> assign;
};

}  // namespace distrun::launcher
