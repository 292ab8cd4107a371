// Arithmetic on tensor elements: out[i] = finish(in_0[i] op in_1[i] op ...). It makes one sweep, always from left to
// right, so that all ranks with the same sources get the same bits. docs/reference/numerics.md has the rules for NaN,
// overflow and rounding. Pure and thread-safe. Pointers need no alignment. `out` may be one of the sources; otherwise
// nothing may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/types.h"

namespace distrun::backend::kernels {

// Instruction sets for which the kernels are compiled. All of them give the same bits.
enum class Level { kPortable, kAvx2, kAvx512 };
inline constexpr Level kLevels[] = {Level::kPortable, Level::kAvx2, Level::kAvx512};
std::string_view name_of(Level level);
bool supported(Level level);  // compiled in, and supported by this processor
Level best_level();

// The last step for a reduced element, before it is stored: divide by `divisor` (an average's group size), then
// multiply by `factor`. Integers divide exactly and truncate toward zero. Bool ignores both.
struct Finish {
  double factor = 1.0;
  std::int64_t divisor = 1;
};

// The Finish of an operation: its postscale, and for an average the division by `group_size`.
Finish finish_of(ReduceOp op, double postscale, std::size_t group_size);

struct Reduction {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // kAverage reduces like kSum; `finish` divides
  Finish finish;
};

// Needs at least one source. `stream`: write past the caches (kernels/copy.h) if that is faster, which is so with two
// sources.
void reduce(const Reduction& what, std::span<const std::byte* const> sources, std::byte* out, std::size_t count,
            bool stream = false);
// out[i] = in[i] * factor. A plain copy if factor is 1; then nothing at all if in == out.
void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count);

// The same with a fixed instruction set, for tests and benchmarks. `level` must be supported.
void reduce_at(Level level, const Reduction& what, std::span<const std::byte* const> sources, std::byte* out,
               std::size_t count, bool stream = false);
void scale_at(Level level, DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count);

}  // namespace distrun::backend::kernels
