#include "runtime/backend/shm/store_choice.h"

#include <algorithm>
#include <limits>

namespace distrun::backend::shm {

void StoreChoice::add(std::uint64_t n, std::size_t bytes, double seconds) {
  Cost& group = groups_[n % kPeriod / kGroup];
  group.seconds += seconds;
  group.bytes += static_cast<double>(bytes);
}

// Uses the best group of each kind. In other groups the thread may have been preempted, or the memory was cold.
void StoreChoice::decide() {
  std::array<double, 2> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].bytes > 0) best[i % 2] = std::min(best[i % 2], groups_[i].seconds / groups_[i].bytes);
  }
  streaming_ = best[1] <= best[0];
  groups_ = {};
}

}  // namespace distrun::backend::shm
