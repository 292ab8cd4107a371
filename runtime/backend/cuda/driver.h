// The driver's library in this process: the one that the program has loaded, otherwise the system's. Nothing here
// initialises CUDA: a process that only lists the backends may still fork and use a GPU in its children.
#pragma once

#include "runtime/backend/cuda/cuda_api.h"
#include "runtime/backend/cuda/loader.h"
#include "runtime/base/status.h"

namespace distrun::backend::cuda_parts {

// The library stays loaded. An error says what is missing and how to fix it.
Result<CudaApi> load_driver(const Loader& loader);

}  // namespace distrun::backend::cuda_parts
