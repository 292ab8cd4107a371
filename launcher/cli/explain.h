// --explain: the plan as text for the user, or as JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/launch_plan.h"

namespace distrun::launcher {

std::string explain_text(const LaunchPlan& plan, const std::vector<std::string>& command);
std::string explain_json(const LaunchPlan& plan, const std::vector<std::string>& command);

}  // namespace distrun::launcher
