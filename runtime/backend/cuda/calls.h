// The driver's functions for one GPU, and what their errors are called.
#pragma once

#include <cstddef>

#include "runtime/backend/cuda/cuda_api.h"
#include "runtime/base/status.h"

namespace distrun::backend::cuda_parts {

struct Calls {
  const CudaApi& cuda;  // outlives this
  int index;            // of the GPU

  [[nodiscard]] Status check(CuResult code, const char* call) const;
  // The same of a call for `bytes` of memory `for_what`; kOutOfMemory where there are none.
  [[nodiscard]] Status check_memory(CuResult code, const char* call, std::size_t bytes, const char* for_what) const;
};

}  // namespace distrun::backend::cuda_parts
