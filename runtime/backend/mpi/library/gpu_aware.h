// Whether an MPI accepts GPU memory in its messages. A separate file, because the tests replace it.
#pragma once

namespace distrun::backend::mpi_plugin {

// The current answer of this library's MPIX_Query_cuda_support(); false if it has no such function. Open MPI 4 can
// answer at any time, Open MPI 5 only after MPI_Init.
bool says_gpu_aware(void* library);

}  // namespace distrun::backend::mpi_plugin
