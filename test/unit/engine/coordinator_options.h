// What tests of the coordinator have in common: a clock of whole seconds, and a job's options.
#pragma once

#include <chrono>
#include <string>

#include "runtime/engine/coordinator.h"

namespace distrun::engine {

inline TimePoint at(int second) { return TimePoint{} + std::chrono::seconds(1000 + second); }

// Without limits of time; two ranks on each host.
inline CoordinatorOptions plain_options(int world_size) {
  CoordinatorOptions o{.world_size = world_size, .fusion_threshold = 1 << 20, .cache_capacity = 16};
  for (int r = 0; r < world_size; ++r) o.hosts.push_back("node" + std::to_string(r / 2));
  return o;
}

}  // namespace distrun::engine
