#include "runtime/net/launchers/platform_tasks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "runtime/base/json.h"

namespace distrun::net {
namespace {

constexpr std::array<std::string_view, 3> kTrain = {"chief", "master", "worker"};

std::size_t as_number(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::size_t in_list(const std::string& text) {
  const auto read = parse_json(text);
  return read && read->kind == Json::Kind::kList ? read->values.size() : 0;
}

std::size_t in_tf_config(const std::string& text) {
  const auto read = parse_json(text);
  const Json* const task = read ? read->find("task") : nullptr;
  const Json* const type = task != nullptr ? task->find("type") : nullptr;
  const Json* const cluster = read ? read->find("cluster") : nullptr;
  if (type == nullptr || cluster == nullptr) return 0;
  if (std::find(kTrain.begin(), kTrain.end(), type->text) == kTrain.end()) return 0;
  std::size_t count = 0;
  for (const std::string_view job : kTrain) {
    const Json* const tasks = cluster->find(job);  // a list, or an object whose names are numbers
    if (tasks != nullptr) count += tasks->values.size();
  }
  return count;
}

struct Row {
  const char* variable;
  std::size_t (*count)(const std::string& text);
};
constexpr std::array<Row, 4> kRows = {{{"TF_CONFIG", in_tf_config},
                                       {"JAX_NUM_PROCESSES", as_number},
                                       {"SM_HOSTS", in_list},
                                       {"AWS_BATCH_JOB_NUM_NODES", as_number}}};
constexpr std::size_t kMostTasks = std::size_t{1} << 24;

}  // namespace

std::optional<PlatformTasks> platform_tasks(const Environment& environment) {
  for (const Row& row : kRows) {
    const auto found = environment.find(row.variable);
    const std::size_t count = found == environment.end() ? 0 : row.count(found->second);
    if (count > 1 && count <= kMostTasks) return PlatformTasks{row.variable, static_cast<int>(count)};
  }
  return std::nullopt;
}

namespace {

// Names all variables with several tasks, so that a user who removes one does not then run into the next.
std::string named(const Environment& environment) {
  std::string out;
  for (const Row& row : kRows) {
    const auto found = environment.find(row.variable);
    if (found != environment.end() && row.count(found->second) > 1) {
      out += (out.empty() ? "" : " and ") + std::string(row.variable);
    }
  }
  return out;
}

}  // namespace

Status not_one_of_several(const Environment& environment) {
  const auto tasks = platform_tasks(environment);
  if (!tasks) return {};
  return {Errc::kInvalidArgument,
          "start the program with `distrun -np N program`: " + tasks->variable + " names " +
              std::to_string(tasks->count) +
              " tasks, but the DISTRUN_* variables are missing, so each process would be rank 0 of 1. If your platform "
              "starts a command on each host, see `distrun help agent`. To run one process alone, unset " +
              named(environment)};
}

}  // namespace distrun::net
