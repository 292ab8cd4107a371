// The GPUs of this process, for tensors that a GPU-aware MPI moves.
#pragma once

#include <cstdint>

#include "runtime/backend/cuda/gpus.h"

namespace distrun::backend::mpi_plugin {

// Starts nothing of CUDA: the process may still fork. kUnsupported says what is missing and the cure.
Status gpus_usable();
Result<cuda_parts::Gpu*> find_gpu(std::int32_t index);

}  // namespace distrun::backend::mpi_plugin
