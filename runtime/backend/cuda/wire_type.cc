#include "runtime/backend/cuda/wire_type.h"

namespace distrun::backend::cuda_parts {

WireType wire_type(DType dtype) {
  const DTypeTraits& traits = traits_of(dtype);
  const bool integer = traits.family == DTypeFamily::kSigned || traits.family == DTypeFamily::kUnsigned;
  const bool too_short = integer && traits.bytes == 2;  // no library sums 16-bit integers
  return {.bytes = too_short ? 4 : traits.bytes,
          .converts = too_short || traits.family == DTypeFamily::kBool,
          .is_float = traits.family == DTypeFamily::kFloat,
          .name = traits.name.data()};
}

std::size_t total_count(const distrun_backend_operation& operation) {
  std::size_t total = 0;
  for (std::uint64_t i = 0; i < operation.num_segments; ++i) total += operation.segments[i].count;
  return total;
}

}  // namespace distrun::backend::cuda_parts
