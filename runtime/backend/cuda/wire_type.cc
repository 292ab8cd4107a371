#include "runtime/backend/cuda/wire_type.h"

namespace distrun::backend::cuda_parts {

WireType wire_type(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return {.bytes = 1, .name = "uint8"};
    case DType::kI8:
      return {.bytes = 1, .name = "int8"};
    case DType::kI16:
      return {.bytes = 4, .converts = true, .name = "int16"};
    case DType::kI32:
      return {.bytes = 4, .name = "int32"};
    case DType::kI64:
      return {.bytes = 8, .name = "int64"};
    case DType::kF16:
      return {.bytes = 2, .is_float = true, .name = "float16"};
    case DType::kBF16:
      return {.bytes = 2, .is_float = true, .name = "bfloat16"};
    case DType::kF32:
      return {.bytes = 4, .is_float = true, .name = "float32"};
    case DType::kF64:
      return {.bytes = 8, .is_float = true, .name = "float64"};
    case DType::kBool:
      return {.bytes = 1, .converts = true, .name = "bool"};
  }
  return {};
}

std::size_t total_count(const distrun_backend_operation& operation) {
  std::size_t total = 0;
  for (std::uint64_t i = 0; i < operation.num_segments; ++i) total += operation.segments[i].count;
  return total;
}

}  // namespace distrun::backend::cuda_parts
