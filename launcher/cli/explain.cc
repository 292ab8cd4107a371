#include "launcher/cli/explain.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "launcher/report/silence_report.h"

namespace distrun::launcher {
namespace {

std::vector<int> cpus_of(const LaunchPlan& plan, std::size_t rank) { return plan.bindings[rank].cpus; }

// Larger jobs are folded: equal ranks and hosts share a line.
constexpr std::size_t kFewRanks = 16;
constexpr std::size_t kLineEnd = 100;
// All lines of a folded plan, and how many of each part stay at least.
constexpr std::size_t kMostLines = 40;
constexpr std::size_t kFewestLines = 3;

// For ranks on hosts that were not asked.
constexpr char kNotKnown[] = "?";

// Neighbours on one host that get as much of the same.
struct Segment {
  std::vector<int> ranks;
  std::vector<std::size_t> hosts;
  std::vector<int> local;
  std::string cpus;
  std::string threads;
  std::string gpus;
};

std::string threads_text(const Binding& binding) { return binding.known ? std::to_string(binding.threads) : kNotKnown; }

bool alike(const Binding& one, const Binding& other) {
  return one.known == other.known && one.cpus.size() == other.cpus.size() && one.threads == other.threads &&
         one.gpus == other.gpus && (one.gpu < 0) == (other.gpu < 0) && one.gpu_model == other.gpu_model;
}

std::string each(std::size_t ranks, std::size_t count) {
  return ranks == 1 ? "" : ", " + std::to_string(count) + " each";
}

std::string cpus_text(const LaunchPlan& plan, const std::vector<int>& ranks) {
  const std::vector<int> first = cpus_of(plan, static_cast<std::size_t>(ranks.front()));
  if (!plan.bindings[static_cast<std::size_t>(ranks.front())].known) return kNotKnown;
  if (first.empty()) return "all";
  std::set<int> all;
  for (const int rank : ranks) {
    const std::vector<int> own = cpus_of(plan, static_cast<std::size_t>(rank));
    all.insert(own.begin(), own.end());
  }
  const bool shared = all.size() == first.size();
  return ranges({all.begin(), all.end()}) + (shared ? "" : each(ranks.size(), first.size()));
}

std::string gpus_text(const LaunchPlan& plan, const std::vector<int>& ranks) {
  const Binding& first = plan.bindings[static_cast<std::size_t>(ranks.front())];
  if (!first.known) return kNotKnown;
  if (first.gpu < 0) return "none";
  std::set<int> all;
  for (const int rank : ranks) {
    const Binding& own = plan.bindings[static_cast<std::size_t>(rank)];
    for (int gpu = own.gpu; gpu < own.gpu + own.gpus; ++gpu) all.insert(gpu);
  }
  return ranges({all.begin(), all.end()}) + each(ranks.size(), static_cast<std::size_t>(first.gpus)) +
         (first.gpu_model.empty() ? "" : " " + first.gpu_model);
}

std::vector<Segment> segments_of(const LaunchPlan& plan) {
  std::vector<Segment> out;
  for (std::size_t rank = 0; rank < plan.places.size(); ++rank) {
    const auto host = static_cast<std::size_t>(plan.places[rank].host);
    const Binding& own = plan.bindings[rank];
    if (out.empty() || out.back().hosts.front() != host || !alike(plan.bindings[rank - 1], own)) {
      out.push_back({.hosts = {host}, .threads = threads_text(own)});
    }
    out.back().ranks.push_back(static_cast<int>(rank));
    out.back().local.push_back(plan.places[rank].local_rank);
  }
  for (Segment& one : out) {
    one.cpus = cpus_text(plan, one.ranks);
    one.gpus = gpus_text(plan, one.ranks);
  }
  return out;
}

// Joins the segments of hosts that get the same.
std::vector<Segment> folded(const std::vector<Segment>& segments) {
  std::vector<Segment> out;
  for (const Segment& one : segments) {
    const auto same = std::find_if(out.begin(), out.end(), [&one](const Segment& other) {
      return one.local == other.local && one.cpus == other.cpus && one.threads == other.threads &&
             one.gpus == other.gpus;
    });
    if (same == out.end()) {
      out.push_back(one);
    } else {
      same->ranks.insert(same->ranks.end(), one.ranks.begin(), one.ranks.end());
      same->hosts.push_back(one.hosts.front());
    }
  }
  return out;
}

std::vector<std::vector<std::string>> folded_placement(const LaunchPlan& plan) {
  constexpr std::size_t kMostHosts = 40;
  std::vector<std::vector<std::string>> rows = {{"ranks", "host", "local", "CPUs", "threads", "GPU"}};
  for (const Segment& one : folded(segments_of(plan))) {
    std::vector<std::string> names;
    for (const std::size_t host : one.hosts) names.push_back(plan.host_names[host]);
    rows.push_back({cut_middle(ranges(one.ranks), kMostHosts), cut_middle(host_list(names), kMostHosts),
                    ranges(one.local), one.cpus, one.threads, one.gpus});
  }
  return rows;
}

std::vector<std::vector<std::string>> placement(const LaunchPlan& plan) {
  if (plan.places.size() > kFewRanks) return folded_placement(plan);
  std::vector<std::vector<std::string>> rows = {{"rank", "host", "local", "CPUs", "threads", "GPU"}};
  for (std::size_t rank = 0; rank < plan.places.size(); ++rank) {
    const Place& place = plan.places[rank];
    const Binding& binding = plan.bindings[rank];
    const std::string cpus = binding.cpus.empty() ? "all" : ranges(binding.cpus);
    rows.push_back({std::to_string(rank), plan.host_names[static_cast<std::size_t>(place.host)],
                    std::to_string(place.local_rank), binding.known ? cpus : kNotKnown, threads_text(binding),
                    binding.known ? gpu_text(binding) : kNotKnown});
  }
  return rows;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// A part of the text: its heading and its lines.
struct Part {
  std::string heading;
  std::vector<std::string> lines;
  std::size_t shown = 0;
  // The line that says how many are missing needs a place too.
  [[nodiscard]] std::size_t size() const { return shown + (shown < lines.size() ? 1 : 0); }
};

Part part_of(std::string heading, std::vector<std::string> lines) {
  const std::size_t all = lines.size();
  return {.heading = std::move(heading), .lines = std::move(lines), .shown = all};
}

// Cuts the longest parts until all have at most `most` lines together.
void cut_to(std::vector<Part>& parts, std::size_t most) {
  const auto total = [&parts] {
    std::size_t sum = 0;
    for (const Part& part : parts) sum += part.size();
    return sum;
  };
  while (total() > most) {
    const auto longest =
        std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.size() < b.size(); });
    if (longest->shown <= kFewestLines) return;
    longest->shown -= longest->shown == longest->lines.size() ? 2U : 1U;
  }
}

std::string text_of(const Part& part) {
  std::string out = "\n" + part.heading + "\n";
  for (std::size_t i = 0; i < part.shown; ++i) out += part.lines[i] + "\n";
  const std::size_t left = part.lines.size() - part.shown;
  return out + (left == 0 ? "" : "  and " + counted(left, "more line") + " (--explain=json has all)\n");
}

std::vector<std::string> reasons(const LaunchPlan& plan) {
  std::vector<std::string> out;
  for (const std::string& hint : plan.hints) out.push_back("  hint: " + hint);
  for (const std::string& reason : plan_reasons(plan)) out.push_back("  " + reason);
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

// Variables with the same reason share lines.
std::string folded_lines(const LaunchPlan& plan, const std::vector<const Variable*>& variables) {
  constexpr std::size_t kMostText = 70;
  std::vector<std::pair<std::string_view, std::string>> groups;
  for (const Variable* const variable : variables) {
    const auto known = [variable](const auto& group) { return group.first == variable->why; };
    auto group = std::find_if(groups.begin(), groups.end(), known);
    if (group == groups.end()) {
      groups.emplace_back(variable->why, "  " + variable->why + ":");
      group = std::prev(groups.end());
    }
    const std::string text = " " + cut_middle(variable->name + "=" + value_in(plan, *variable), kMostText);
    const std::size_t line = group->second.rfind('\n');
    const std::size_t column = group->second.size() - (line == std::string::npos ? 0 : line + 1);
    group->second += (column + text.size() > kLineEnd ? "\n   " : "") + text;
  }
  std::string out;
  for (const auto& [why, text] : groups) out += text + "\n";
  return out;
}

std::string lines_of(const LaunchPlan& plan, const std::vector<const Variable*>& variables) {
  if (plan.places.size() > kFewRanks) return folded_lines(plan, variables);
  std::string out;
  for (const Variable* const variable : variables) out += line_of(plan, *variable);
  return out;
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
         "], \"threads\": " + (binding.known ? std::to_string(binding.threads) : "null") +
         ", \"gpu\": " + (binding.gpu < 0 ? "null" : std::to_string(binding.gpu)) +
         ", \"gpus\": " + std::to_string(binding.gpus) + ", \"gpu_name\": " + json_quote(binding.gpu_name) +
         ", \"why\": {\"cpus\": " + json_quote(binding.cpu_reason) + ", \"gpu\": " + json_quote(binding.gpu_reason) +
         ", \"environment\": {" + join(why, ", ") + "}}, \"environment\": {" + join(environment, ", ") + "}}";
}

}  // namespace

std::string explain_text(const LaunchPlan& plan, const std::vector<std::string>& command, const std::string& obstacle) {
  const bool folds = plan.places.size() > kFewRanks;
  std::string out = counted(plan.places.size(), "rank") + " on " + counted(plan.host_names.size(), "host") + ": " +
                    join(command, " ") + "\nNothing is started.\n";
  if (!obstacle.empty()) out += sentence(obstacle) + "\n";
  const Environments variables = environments(plan);
  const Shared shared = same_everywhere(variables);
  std::vector<const Variable*> common;
  std::vector<const Variable*> own;
  for (const Variable* variable : variables.front()) {
    (shared.contains({variable->name, variable->value}) ? common : own).push_back(variable);
  }
  std::vector<Part> parts = {
      part_of("Where:", lines_in(table(placement(plan)))), part_of("Why:", reasons(plan)),
      part_of("Environment of all ranks, besides what they inherit:", lines_in(lines_of(plan, common)))};
  if (!own.empty()) {
    parts.push_back(part_of("Environment that differs between ranks, here that of rank 0 (--explain=json has all):",
                            lines_in(lines_of(plan, own))));
  }
  const std::size_t fixed = lines_in(out).size() + 2 * parts.size();
  if (folds) cut_to(parts, kMostLines - fixed);
  for (const Part& part : parts) out += text_of(part);
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
