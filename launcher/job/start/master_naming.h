// Asks all hosts whether they know a name for rank 0's host, if MASTER_ADDR needs one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/plan/network/master_name.h"
#include "launcher/protocol/messages.h"

namespace distrun::launcher {

class MasterNaming {
 public:
  // `agents` must outlive it.
  explicit MasterNaming(AgentLinks& agents) : agents_(agents) {}

  // False: no name is needed. This saves a round. `master`: the index of rank 0's host, whose address is known.
  bool ask(std::size_t master);
  // Returns the choice when the last agent has answered.
  std::optional<MasterName> answered(AgentLink& agent, const Resolved& answer);

 private:
  AgentLinks& agents_;
  std::size_t master_ = 0;
  std::vector<std::string> names_;
};

}  // namespace distrun::launcher
