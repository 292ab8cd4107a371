// The driver's library in this process: what the program has loaded, else the system's. Nothing here starts CUDA: a
// process that only asks what there is may still fork and use a GPU in its children.
#pragma once

#include "runtime/backend/cuda/cuda_api.h"
#include "runtime/backend/cuda/loader.h"
#include "runtime/base/status.h"

namespace distrun::backend::cuda_parts {

// It stays loaded. An error says what is missing and the cure.
Result<CudaApi> load_driver(const Loader& loader);

}  // namespace distrun::backend::cuda_parts
