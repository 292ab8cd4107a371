// How elements of a dtype travel and are reduced, where kernels pack and unpack them. Pure.
#pragma once

#include <cstddef>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/types.h"

namespace distrun::backend::cuda_parts {

struct WireType {
  std::size_t bytes = 4;  // of one element
  bool converts = false;  // reduced as another type, which the kernels make of it and back
  bool is_float = false;
  const char* name = "";  // of the kernels
};
WireType wire_type(DType dtype);

// Elements of all segments.
std::size_t total_count(const distrun_backend_operation& operation);

}  // namespace distrun::backend::cuda_parts
