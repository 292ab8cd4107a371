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

}  // namespace distrun::launcher
