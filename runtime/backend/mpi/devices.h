// The GPUs of this process, for tensors that a GPU-aware MPI moves.
#pragma once

#include <cstdint>

#include "runtime/backend/cuda/gpus.h"

namespace distrun::backend::mpi_plugin {

// Does not initialise CUDA, so the process may still fork. kUnsupported says what is missing and how to fix it.
Status gpus_usable();
Result<cuda_parts::Gpu*> find_gpu(std::int32_t index);

}  // namespace distrun::backend::mpi_plugin
