// --explain: the plan as text for the user, or as JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/launch_plan.h"

namespace distrun::launcher {

// `obstacle`: why the job could not start; empty: it could. At most 40 lines, however large the job is.
std::string explain_text(const LaunchPlan& plan, const std::vector<std::string>& command,
                         const std::string& obstacle = {});
std::string explain_json(const LaunchPlan& plan, const std::vector<std::string>& command);

}  // namespace distrun::launcher
