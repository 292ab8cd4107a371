#include "runtime/backend/shm/store_policy.h"

#include <algorithm>

namespace distrun::backend::shm {
namespace {

// Chunks below kStreamFrom are always written through the cache, because their latency matters. Chunks of kLargeChunk
// and more have a decision of their own.
constexpr std::size_t kStreamFrom = 4096;
constexpr std::size_t kLargeChunk = 64 << 10;

int choice_of(const Plan& plan, std::size_t unit) {
  const std::size_t bytes = std::min(plan.chunk_elements, plan.elements) * unit;
  if (plan.path == Path::kTiny || plan.path == Path::kNothing || bytes < kStreamFrom) return -1;
  return bytes < kLargeChunk ? 0 : 1;
}

}  // namespace

void StorePolicy::admit(WindowTransfer& transfer) {
  transfer.stores = choice_of(transfer.plan, transfer.unit);
  if (transfer.stores < 0 || !transfer.reduces()) return;
  std::uint64_t& next = next_tried_[static_cast<std::size_t>(transfer.stores)];
  transfer.first_tried = next;
  next += transfer.plan.chunks;
}

}  // namespace distrun::backend::shm
