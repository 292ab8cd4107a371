// Which hosts the job waits for, in words.
#pragma once

#include <functional>
#include <string>

#include "launcher/job/agents/agent_links.h"

namespace distrun::launcher {

// "no answer from a, b (2 of 3 hosts)", and lines about broken paths to them. Empty if all agents have answered.
std::string missing_hosts(const AgentLinks& agents, const std::function<bool(const AgentLink&)>& answered);

}  // namespace distrun::launcher
