// GPU memory for code that does not use distrun's stream, such as an MPI, which may share the memory with other
// processes. A returned block is kept for the next use, because allocating may wait for the device, and freeing even
// more so. Make all calls with the GPU current.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/backend/cuda/calls.h"

namespace distrun::backend::cuda_parts {

struct Block {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

class BlockPool {
 public:
  explicit BlockPool(const Calls& calls) : calls_(calls) {}
  Result<Block> take(std::size_t bytes);
  void give_back(Block block);
  void free_all();

 private:
  const Calls calls_;
  std::vector<Block> blocks_;  // unused blocks
};

}  // namespace distrun::backend::cuda_parts
