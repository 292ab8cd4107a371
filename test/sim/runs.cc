#include "test/sim/runs.h"

#include "test/sim/simulation.h"

namespace distrun::sim {

std::string RunResult::text() const {
  std::string text = scenario + "\n";
  for (const std::string& finding : findings) text += "  " + finding + "\n";
  return text + "  replay: " + command + "\n";
}

RunResult run_seed(std::uint64_t seed, const RunWishes& wishes) {
  const Scenario scenario = make_scenario(seed, wishes.scenario);
  RunResult result{.scenario = describe(scenario)};
  result.command = "build/dev/test/sim/coordinator_sim --trace --seed " + std::to_string(seed);
  if (wishes.scenario.ranks) result.command += " --ranks " + std::to_string(*wishes.scenario.ranks);
  if (wishes.scenario.fault) result.command += " --fault " + std::string(name_of(*wishes.scenario.fault));
  std::optional<Mutant> mutant;
  if (wishes.mutant) {
    mutant.emplace(*wishes.mutant, seed);
    result.command += " --mutant " + std::string(name_of(*wishes.mutant));
  }
  Simulation simulation(scenario, mutant ? &*mutant : nullptr, wishes.trace);
  simulation.run();
  result.findings = simulation.findings().list();
  result.events = simulation.events();
  result.held = simulation.held();
  result.mutant_struck = mutant && mutant->struck();
  return result;
}

}  // namespace distrun::sim
