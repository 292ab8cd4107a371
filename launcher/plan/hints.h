// Tells the user about expectations that a plan does not meet, each with a cure: programs for other launchers, and
// settings that do not work together. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/launch_plan.h"

namespace distrun::launcher {

// `facts` is by host. Reads only the places, host names and bindings of `plan`.
std::vector<std::string> hints_for(const PlanRequest& request, const std::vector<HostFacts>& facts,
                                   const LaunchPlan& plan);

// The hint of a script for tf.distribute that lacks the option that it needs. Its ranks fail inside TensorFlow or
// Keras, whose errors do not name the option. `ranks`: their number. Empty: no such hint is due.
std::string hint_at_failure(const PlanRequest& request, std::size_t ranks);

// A hint for a job that ended because a rank failed. For scripts with a strategy whose workers wait for each other in
// every step. `ended_well`: ranks that had ended with code 0. Empty: no hint.
std::string hint_at_early_ends(const Strategies& uses, const std::vector<int>& ended_well);

}  // namespace distrun::launcher
