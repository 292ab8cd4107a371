#include "launcher/cli/explain.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

std::vector<int> cpus_of(const LaunchPlan& plan, std::size_t rank) { return plan.bindings[rank].cpus; }

std::string placement(const LaunchPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"rank", "host", "local", "CPUs", "threads", "GPU"}};
  for (std::size_t rank = 0; rank < plan.places.size(); ++rank) {
    const Place& place = plan.places[rank];
    const Binding& binding = plan.bindings[rank];
    rows.push_back({std::to_string(rank), plan.host_names[static_cast<std::size_t>(place.host)],
                    std::to_string(place.local_rank), binding.cpus.empty() ? "all" : ranges(binding.cpus),
                    std::to_string(binding.threads), gpu_text(binding)});
  }
  return table(rows);
}

std::string reasons(const LaunchPlan& plan) {
  std::string out;
  for (const std::string& reason : plan_reasons(plan)) out += "  " + reason + "\n";
  for (const std::string& hint : plan.hints) out += "  hint: " + hint + "\n";
  return out;
}

// For each rank, the variables that it gets in addition to those it inherits. Points into the plan: some values name
// all hosts and are long.
using Environments = std::vector<std::vector<const Variable*>>;

Environments environments(const LaunchPlan& plan) {
  Environments out;
  for (const std::vector<Variable>& own : plan.variables) {
    std::vector<const Variable*>& of_rank = out.emplace_back();
    for (const Variable& variable : own) of_rank.push_back(&variable);
    for (const Variable& given : plan.given) {
      const bool hidden =
          std::any_of(own.begin(), own.end(), [&given](const Variable& v) { return v.name == given.name; });
      if (!hidden) of_rank.push_back(&given);
    }
  }
  return out;
}

// Pairs of name and value. Views avoid copies for thousands of ranks.
using Shared = std::set<std::pair<std::string_view, std::string_view>>;
Shared same_everywhere(const Environments& environments) {
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> count;
  for (const std::vector<const Variable*>& of_rank : environments) {
    Shared own;
    for (const Variable* v : of_rank) own.emplace(v->name, v->value);
    for (const auto& one : own) ++count[one];
  }
  Shared shared;
  for (const auto& [one, ranks] : count) {
    if (ranks == environments.size()) shared.insert(one);
  }
  return shared;
}

std::string line_of(const LaunchPlan& plan, const Variable& variable) {
  return "  " + variable.name + "=" + value_in(plan, variable) + "    " + variable.why + "\n";
}

std::string json_list(const std::vector<std::string>& items) {
  std::vector<std::string> quoted;
  for (const std::string& item : items) quoted.push_back(json_quote(item));
  return "[" + join(quoted, ", ") + "]";
}

std::string json_rank(const LaunchPlan& plan, const Environments& variables, std::size_t rank) {
  const Place& place = plan.places[rank];
  const Binding& binding = plan.bindings[rank];
  std::vector<std::string> cpus;
  for (const int cpu : cpus_of(plan, rank)) cpus.push_back(std::to_string(cpu));
  std::vector<std::string> environment;
  std::vector<std::string> why;
  for (const Variable* variable : variables[rank]) {
    environment.push_back(json_quote(variable->name) + ": " + json_quote(value_in(plan, *variable)));
    why.push_back(json_quote(variable->name) + ": " + json_quote(variable->why));
  }
  return "{\"rank\": " + std::to_string(rank) +
         ", \"host\": " + json_quote(plan.host_names[static_cast<std::size_t>(place.host)]) +
         ", \"local_rank\": " + std::to_string(place.local_rank) +
         ", \"local_size\": " + std::to_string(place.local_size) +
         ", \"cross_rank\": " + std::to_string(place.cross_rank) +
         ", \"cross_size\": " + std::to_string(place.cross_size) + ", \"cpus\": [" + join(cpus, ", ") +
         "], \"threads\": " + std::to_string(binding.threads) +
         ", \"gpu\": " + (binding.gpu < 0 ? "null" : std::to_string(binding.gpu)) +
         ", \"gpus\": " + std::to_string(binding.gpus) + ", \"gpu_name\": " + json_quote(binding.gpu_name) +
         ", \"why\": {\"cpus\": " + json_quote(binding.cpu_reason) + ", \"gpu\": " + json_quote(binding.gpu_reason) +
         ", \"environment\": {" + join(why, ", ") + "}}, \"environment\": {" + join(environment, ", ") + "}}";
}

}  // namespace

std::string explain_text(const LaunchPlan& plan, const std::vector<std::string>& command) {
  std::string out = counted(plan.places.size(), "rank") + " on " + counted(plan.host_names.size(), "host") + ": " +
                    join(command, " ") + "\nNothing is started.\n\nWhere:\n" + placement(plan) + "\nWhy:\n" +
                    reasons(plan) + "\nEnvironment of all ranks, besides what they inherit:\n";
  const Environments variables = environments(plan);
  const Shared shared = same_everywhere(variables);
  for (const Variable* variable : variables.front()) {
    if (shared.contains({variable->name, variable->value})) out += line_of(plan, *variable);
  }
  for (std::size_t rank = 0; rank < variables.size(); ++rank) {
    std::string own;
    for (const Variable* variable : variables[rank]) {
      if (!shared.contains({variable->name, variable->value})) own += line_of(plan, *variable);
    }
    if (!own.empty()) out += "\nEnvironment of rank " + std::to_string(rank) + " alone:\n" + own;
  }
  return out;
}

std::string explain_json(const LaunchPlan& plan, const std::vector<std::string>& command) {
  const Environments variables = environments(plan);
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < plan.places.size(); ++rank)
    ranks.push_back("  " + json_rank(plan, variables, rank));
  return "{\"command\": " + json_list(command) + ",\n \"hosts\": " + json_list(plan.host_names) +
         ",\n \"reasons\": " + json_list(plan.reasons) + ",\n \"hints\": " + json_list(plan.hints) +
         ",\n \"ranks\": [\n" + join(ranks, ",\n") + "\n]}\n";
}

}  // namespace distrun::launcher
