// What the user may expect of a plan and will not get, each with what to type instead: programs for other launchers,
// and settings that do not go together. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/launch_plan.h"

namespace distrun::launcher {

// `facts` by host; of `plan` the places, host names and bindings are looked at.
std::vector<std::string> hints_for(const PlanRequest& request, const std::vector<HostFacts>& facts,
                                   const LaunchPlan& plan);

}  // namespace distrun::launcher
