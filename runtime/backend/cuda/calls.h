// The driver's functions for one GPU, and the texts of their errors.
#pragma once

#include <cstddef>

#include "runtime/backend/cuda/cuda_api.h"
#include "runtime/base/status.h"

namespace distrun::backend::cuda_parts {

struct Calls {
  const CudaApi& cuda;  // outlives this object
  int index;            // number of the GPU

  [[nodiscard]] Status check(CuResult code, const char* call) const;
  // The same for a call that allocates `bytes` of memory `for_what`. kOutOfMemory if there is not enough memory.
  [[nodiscard]] Status check_memory(CuResult code, const char* call, std::size_t bytes, const char* for_what) const;
};

}  // namespace distrun::backend::cuda_parts
