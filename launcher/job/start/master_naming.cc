#include "launcher/job/start/master_naming.h"

namespace distrun::launcher {

bool MasterNaming::ask(std::size_t master) {
  master_ = master;
  const AgentLink& host = agents_[master];
  names_ = names_of_host(host.facts->address, host.host, host.facts->name);
  if (names_.empty()) return false;
  agents_.send_all(ToAgent::kResolve, Resolve{.names = names_});
  return true;
}

std::optional<MasterName> MasterNaming::answered(AgentLink& agent, const Resolved& answer) {
  agent.names = answer.addresses;
  const HostFacts& facts = *agents_[master_].facts;
  std::vector<HostAnswer> answers;
  for (const auto& one : agents_.all()) {
    if (!one->names) return std::nullopt;
    // With --mpi a machine has several agents.
    const bool same = one->index == master_ || (!facts.machine.empty() && one->facts->machine == facts.machine);
    answers.push_back({.host = one->host, .is_own = same, .names = *one->names});
  }
  return choose_master_name(names_, facts.address, facts.candidates, answers);
}

}  // namespace distrun::launcher
