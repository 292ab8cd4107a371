// What tests of the coordinator have in common: a clock of whole seconds, a job's options, and the entries of one kind.
#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "runtime/engine/coordinator.h"

namespace distrun::engine {

inline TimePoint at(int second) { return TimePoint{} + std::chrono::seconds(1000 + second); }

// Without limits of time; two ranks on each host.
inline CoordinatorOptions plain_options(int world_size) {
  CoordinatorOptions o{.world_size = world_size, .fusion_threshold = 1 << 20, .cache_capacity = 16};
  for (int r = 0; r < world_size; ++r) o.hosts.push_back("node" + std::to_string(r / 2));
  return o;
}

// With a stall warning after ten seconds.
inline CoordinatorOptions warning_options(int world_size) {
  CoordinatorOptions o = plain_options(world_size);
  o.stall_warning = std::chrono::seconds(10);
  return o;
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
