// Helpers for tests of the coordinator: a clock of whole seconds, a job's options, requests of ranks, and the entries
// of one kind.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/engine/agreement/coordinator.h"

namespace distrun::engine {

inline TimePoint at(int second) { return TimePoint{} + std::chrono::seconds(1000 + second); }

// Options without time limits, and with two ranks on each host.
inline CoordinatorOptions plain_options(int world_size) {
  CoordinatorOptions o{.world_size = world_size, .fusion_threshold = 1 << 20, .cache_capacity = 16};
  for (int r = 0; r < world_size; ++r) o.hosts.push_back("node" + std::to_string(r / 2));
  return o;
}

// The same options with a stall warning after 10 s.
inline CoordinatorOptions warning_options(int world_size) {
  CoordinatorOptions o = plain_options(world_size);
  o.stall_warning = std::chrono::seconds(10);
  return o;
}

inline message::Submitted request(const std::string& name, const Shape& shape = {4}, int set = 0) {
  return {.set = set, .name = name, .signature = {.shape = shape}};
}

// The call that adds a set and that only the members of the set make.
inline Call alone(std::vector<int> ranks) {
  return {.kind = Call::Kind::kAddSet, .ranks = std::move(ranks), .members_only = true};
}

template <class T>
std::vector<T> only(const Actions& actions) {
  std::vector<T> found;
  for (const Entry& entry : actions.entries) {
    if (const auto* one = std::get_if<T>(&entry)) found.push_back(*one);
  }
  return found;
}

}  // namespace distrun::engine
