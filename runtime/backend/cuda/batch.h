// The parameters of one launch of distrun's kernels. Shared by kernels.cu (C++17, nvcc) and the plug-in (g++). Passed
// by value, with at most 4 KiB, which every GPU accepts. So nothing has to be uploaded first.
#pragma once

#include <cstdint>

namespace distrun::backend::cuda_parts {

struct Piece {
  const void* from;
  void* to;
  std::uint64_t count;  // elements
};

// The operation of `combine`. The other kernels ignore it.
enum Combine : std::int32_t { kCombineSum, kCombineProduct, kCombineMin, kCombineMax };

constexpr int kPieces = 140;              // per launch
constexpr unsigned kTileElements = 4096;  // elements that one block of threads processes at a time
constexpr unsigned kBlockThreads = 256;

struct Batch {
  Piece pieces[kPieces];
  std::uint32_t tile_ends[kPieces];  // number of tiles up to and including this piece
  std::uint32_t num_pieces;
  std::int32_t scales;   // 0: factor and divisor are 1
  double factor;         // applied after the division
  std::int64_t divisor;  // an average's group size
  Combine combine;
};
static_assert(sizeof(Batch) <= 4096, "more than a kernel takes by value");

}  // namespace distrun::backend::cuda_parts
