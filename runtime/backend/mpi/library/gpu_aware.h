// Whether an MPI takes memory of GPUs in its messages. In a file of its own, which the tests replace.
#pragma once

namespace distrun::backend::mpi_plugin {

// What MPIX_Query_cuda_support() of this library says now, false where there is none. Open MPI 4 knows at any time, 5
// from MPI_Init on.
bool says_gpu_aware(void* library);

}  // namespace distrun::backend::mpi_plugin
