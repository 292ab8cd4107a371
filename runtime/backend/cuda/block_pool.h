// Memory of a GPU for who knows nothing of our stream, such as an MPI, which may pass it on to other processes. Kept
// for the next one when it is given back: to allocate it, and to free it more so, may wait for the device. All calls
// with the GPU current.
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
  std::vector<Block> blocks_;  // that nobody has
};

}  // namespace distrun::backend::cuda_parts
