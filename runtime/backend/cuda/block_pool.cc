#include "runtime/backend/cuda/block_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace distrun::backend::cuda_parts {
namespace {

constexpr std::size_t kLeastBlock = std::size_t{1} << 20;

}  // namespace

Result<Block> BlockPool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeastBlock));
  const auto fits =
      std::ranges::find_if(blocks_, [&](const Block& one) { return one.bytes >= bytes && one.bytes <= size; });
  if (fits != blocks_.end()) {
    const Block found = *fits;
    blocks_.erase(fits);
    return found;
  }
  CuPointer memory = 0;
  const CuResult code = calls_.cuda.allocate_plain(&memory, size);
  if (code != kCuOutOfMemory) {
    DISTRUN_RETURN_IF_ERROR(calls_.check(code, "cuMemAlloc"));
    return Block{.memory = reinterpret_cast<std::byte*>(memory), .bytes = size};
  }
  // Last resort: free the spare blocks and allocate the exact size.
  free_all();
  const CuResult again = calls_.cuda.allocate_plain(&memory, bytes);
  DISTRUN_RETURN_IF_ERROR(calls_.check_memory(again, "cuMemAlloc", bytes, "of a tensor on its way"));
  return Block{.memory = reinterpret_cast<std::byte*>(memory), .bytes = bytes};
}

void BlockPool::give_back(Block block) {
  if (block.memory != nullptr) blocks_.push_back(block);
}

void BlockPool::free_all() {
  for (const Block& one : std::exchange(blocks_, {})) calls_.cuda.release_plain(device_address(one.memory));
}

}  // namespace distrun::backend::cuda_parts
