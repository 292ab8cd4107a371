#include "runtime/net/identity/world.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace distrun::net {
namespace {

// One row per number of the contract, so that writing and reading use the same variables.
struct NumberRow {
  const char* variable;
  int World::*field;
};
constexpr std::array<NumberRow, 6> kNumbers = {{{"DISTRUN_RANK", &World::rank},
                                                {"DISTRUN_SIZE", &World::size},
                                                {"DISTRUN_LOCAL_RANK", &World::local_rank},
                                                {"DISTRUN_LOCAL_SIZE", &World::local_size},
                                                {"DISTRUN_CROSS_RANK", &World::cross_rank},
                                                {"DISTRUN_CROSS_SIZE", &World::cross_size}}};

struct TextRow {
  const char* variable;
  std::string World::*field;
};
constexpr std::array<TextRow, 4> kTexts = {{{"DISTRUN_HOST", &World::host},
                                            {"DISTRUN_JOB_ID", &World::job_id},
                                            {"DISTRUN_STORE", &World::store},
                                            {"DISTRUN_ADDRESS", &World::address}}};

constexpr const char* kGpus = "DISTRUN_GPUS";

constexpr int kMaxRanks = 1 << 24;

std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status bad_world(const std::string& text) {
  return {Errc::kInvalidArgument,
          text + ". Start the program with `distrun -np N program`, which sets these variables"};
}

Status check_range(const char* variable, int value, int limit) {
  if (value >= 0 && value < limit) return {};
  return bad_world(std::string(variable) + "=" + std::to_string(value) + " is not a number from 0 to " +
                   std::to_string(limit - 1));
}

Status check(const World& world) {
  if (world.size < 1 || world.size > kMaxRanks) {
    return bad_world("DISTRUN_SIZE=" + std::to_string(world.size) + " is not a number from 1 to " +
                     std::to_string(kMaxRanks));
  }
  DISTRUN_RETURN_IF_ERROR(check_range("DISTRUN_RANK", world.rank, world.size));
  DISTRUN_RETURN_IF_ERROR(check_range("DISTRUN_LOCAL_SIZE", world.local_size - 1, world.size));
  DISTRUN_RETURN_IF_ERROR(check_range("DISTRUN_LOCAL_RANK", world.local_rank, world.local_size));
  DISTRUN_RETURN_IF_ERROR(check_range("DISTRUN_CROSS_SIZE", world.cross_size - 1, world.size));
  DISTRUN_RETURN_IF_ERROR(check_range("DISTRUN_CROSS_RANK", world.cross_rank, world.cross_size));
  if (world.size > 1 && world.store.empty()) return bad_world("DISTRUN_STORE is missing, but DISTRUN_SIZE is above 1");
  return {};
}

std::string list_text(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += (out.empty() ? "" : ",") + std::to_string(number);
  return out;
}

Result<std::vector<int>> read_gpus(const Environment& environment) {
  std::vector<int> out;
  const auto variable = environment.find(kGpus);
  if (variable == environment.end() || variable->second.empty()) return out;
  for (std::string_view rest = variable->second;;) {
    const std::size_t comma = rest.find(',');
    const std::optional<int> number = to_number(rest.substr(0, comma));
    if (!number || *number < 0)
      return bad_world(std::string(kGpus) + "=" + variable->second + " is not a list of numbers");
    out.push_back(*number);
    if (comma == std::string_view::npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace

Environment to_environment(const World& world) {
  Environment environment;
  for (const NumberRow& row : kNumbers) environment[row.variable] = std::to_string(world.*row.field);
  for (const TextRow& row : kTexts) {
    if (!(world.*row.field).empty()) environment[row.variable] = world.*row.field;
  }
  if (!world.gpus.empty()) environment[kGpus] = list_text(world.gpus);
  return environment;
}

Result<World> world_from_environment(const Environment& environment) {
  World world;
  int found = 0;
  std::string missing;
  for (const NumberRow& row : kNumbers) {
    const auto variable = environment.find(row.variable);
    if (variable == environment.end()) {
      missing = row.variable;
      continue;
    }
    const std::optional<int> number = to_number(variable->second);
    if (!number) return bad_world(std::string(row.variable) + "=" + variable->second + " is not a number");
    world.*row.field = *number;
    ++found;
  }
  if (found == 0) {
    for (const char* variable : {"DISTRUN_STORE", "DISTRUN_KEY_FD"}) {
      const auto alone = environment.find(variable);
      if (alone == environment.end() || alone->second.empty()) continue;
      return bad_world(std::string(variable) +
                       " is set, but DISTRUN_RANK, DISTRUN_SIZE and the other rank variables are missing");
    }
    return World{};
  }
  if (!missing.empty()) return bad_world(missing + " is missing, but other DISTRUN_* rank variables are set");
  for (const TextRow& row : kTexts) {
    const auto variable = environment.find(row.variable);
    if (variable != environment.end() && !variable->second.empty()) world.*row.field = variable->second;
  }
  auto gpus = read_gpus(environment);
  if (!gpus.ok()) return gpus.status();
  world.gpus = *std::move(gpus);
  DISTRUN_RETURN_IF_ERROR(check(world));
  return world;
}

}  // namespace distrun::net
