// How elements of a dtype are sent and reduced when kernels pack and unpack them. Pure.
#pragma once

#include <cstddef>

#include "runtime/backend/plugin/include/distrun/distrun_backend.h"
#include "runtime/base/types.h"

namespace distrun::backend::cuda_parts {

struct WireType {
  std::size_t bytes = 4;  // per element
  bool converts = false;  // reduced as another type; the kernels convert in both directions
  bool is_float = false;
  const char* name = "";  // in the names of the kernels
};
WireType wire_type(DType dtype);

// Elements of all segments.
std::size_t total_count(const distrun_backend_operation& operation);

}  // namespace distrun::backend::cuda_parts
