// Arithmetic on tensor elements: out[i] = finish(in_0[i] op in_1[i] op ...), in one sweep and always left to right, so
// that every rank that is given the same sources gets the same bits. Rules for NaN, overflow and rounding:
// docs/numerics.md. Pure functions, callable from any thread; pointers need no alignment; `out` may be one of the
// sources, otherwise nothing overlaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/types.h"

namespace distrun::backend::kernels {

// Instruction sets that the kernels are compiled for. All give the same bits.
enum class Level { kPortable, kAvx2, kAvx512 };
inline constexpr Level kLevels[] = {Level::kPortable, Level::kAvx2, Level::kAvx512};
std::string_view name_of(Level level);
bool supported(Level level);  // compiled in, and this processor has it
Level best_level();

// What happens to a reduced element before it is stored: divided by `divisor` (an average's group size), then
// multiplied by `factor`. Integers divide exactly and truncate toward zero; bool ignores both.
struct Finish {
  double factor = 1.0;
  std::int64_t divisor = 1;
};

// An operation's Finish: the postscale, and the division of an average over `group_size` members.
Finish finish_of(ReduceOp op, double postscale, std::size_t group_size);

struct Reduction {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // kAverage reduces like kSum; the division is the Finish's
  Finish finish;
};

// At least one source. `stream`: past the caches (kernels/copy.h) where that pays, which is with two sources.
void reduce(const Reduction& what, std::span<const std::byte* const> sources, std::byte* out, std::size_t count,
            bool stream = false);
// out[i] = in[i] * factor; a plain copy when factor is 1 (nothing at all when in == out as well).
void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count);

// The same on one instruction set, for tests and benchmarks; `level` must be supported.
void reduce_at(Level level, const Reduction& what, std::span<const std::byte* const> sources, std::byte* out,
               std::size_t count, bool stream = false);
void scale_at(Level level, DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count);

}  // namespace distrun::backend::kernels
