// What one launch of our kernels works on. Shared by kernels.cu (C++17, nvcc) and the plug-in (g++), and passed by
// value: at most 4 KiB, what every GPU takes, so that nothing has to be uploaded first.
#pragma once

#include <cstdint>

namespace distrun::backend::cuda_parts {

struct Piece {
  const void* from;
  void* to;
  std::uint64_t count;  // elements
};

// What `combine` does; a launch of the others ignores it.
enum Combine : std::int32_t { kCombineSum, kCombineProduct, kCombineMin, kCombineMax };

constexpr int kPieces = 140;              // of one launch
constexpr unsigned kTileElements = 4096;  // what one block of threads takes at a time
constexpr unsigned kBlockThreads = 256;

struct Batch {
  Piece pieces[kPieces];
  std::uint32_t tile_ends[kPieces];  // tiles of this piece and of those before it
  std::uint32_t num_pieces;
  std::int32_t scales;   // 0: factor and divisor are 1
  double factor;         // multiplied in, after the division
  std::int64_t divisor;  // an average's group size
  Combine combine;
};
static_assert(sizeof(Batch) <= 4096, "more than a kernel takes by value");

}  // namespace distrun::backend::cuda_parts
