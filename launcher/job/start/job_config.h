// What a job is to do, as the command line, its settings and the hosts say. It does not change while the job runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/start/start_queue.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/plan/network/network.h"
#include "launcher/report/output.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// What depends on the hosts that get ranks.
struct JobLayout {
  PlanRequest plan;  // without store, which the job adds
  JobCommon common;
  OutputOptions output;
  bool several_machines = false;  // some host is not this machine: addresses are probed
};

struct JobConfig : JobLayout {
  double grace = 10;
  std::optional<double> stop_limit;  // seconds after a notice; none: whoever gave it ends the job when it must
  int preempt_signal = 0;            // 0: none
  double host_timeout = 5;           // seconds, the setting
  double timeout = 0;                // seconds for the whole job; 0: none
  std::optional<TimePoint> end_by;   // when they are over
  bool report_bindings = false;
  bool verbose = false;  // tell the reasons of the plan before ranks start
  std::string sysroot = "/";
  StartQueue::Limits start;
  int fan_out = 32;       // with more hosts than that, agents start others
  NetworkFilter network;  // --network
  // Where set, all candidates are in plan.assignment.hosts and are asked what they have. This then decides which of
  // them get ranks, and returns the layout that follows from that.
  std::function<Result<JobLayout>(const std::vector<Topology>&, const JobLayout&)> assign;
};

}  // namespace distrun::launcher
