#include "launcher/job/start/missing_hosts.h"

#include <vector>

#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/carrier_path.h"
#include "launcher/spawn/remote_command.h"

namespace distrun::launcher {

std::string missing_hosts(const AgentLinks& agents, const std::function<bool(const AgentLink&)>& answered) {
  std::vector<std::string> missing;
  std::string paths;
  for (const auto& agent : agents.all()) {
    if (answered(*agent)) continue;
    missing.push_back(agent->host);
    if (!agent->by_ssh || agent->gone() || missing.size() > kMostPaths) continue;
    const std::string fault = path_fault(path_of_carrier(agent->handle.process.pid()));
    if (!fault.empty()) paths += "\n  this machine -> " + agent->host + ": " + fault;
  }
  if (missing.empty()) return "";
  return "no answer from " + join(missing, ", ") + " (" + std::to_string(missing.size()) + " of " +
         counted(agents.size(), "host") + ")" + paths;
}

}  // namespace distrun::launcher
