// The interface between kernels.cc and the files that are compiled once per instruction set. Those files may not use
// inline functions of the standard library, because the linker might keep their AVX-512 copy for the whole program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/types.h"

namespace distrun::backend::kernels {

// A Finish whose casts are done once per call instead of once per element.
struct FinishArgs {
  bool identity = true;
  float f32 = 1.0F;     // factor / divisor
  double f64 = 1.0;     // factor / divisor
  double factor = 1.0;  // for integers: applied after the division
  std::int64_t divisor = 1;
  bool stream = false;  // `out` is at the start of a cache line, and `count` elements are whole lines
};

struct Sources {
  const std::byte* const* at = nullptr;
  std::size_t count = 0;
};

inline constexpr std::size_t kCopyBlock = 256;  // bytes

// Copies whole blocks. Nothing may overlap.
using CopyFn = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
using ReduceFn = void (*)(Sources sources, std::byte* out, std::size_t count, const FinishArgs& finish);

inline constexpr int kNumTableOps = 4;  // sum, min, max, product

struct Table {
  ReduceFn reduce[kNumDTypes][kNumTableOps];  // indexed by DType; a scale is a reduction with one source
  CopyFn copy = nullptr;
};

const Table& portable_table();
// Null if the compiler does not target x86-64.
const Table* avx2_table();
const Table* avx512_table();
const Table& best_table();  // the best one for this processor

}  // namespace distrun::backend::kernels
