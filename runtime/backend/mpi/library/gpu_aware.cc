#include "runtime/backend/mpi/library/gpu_aware.h"

#include <dlfcn.h>

namespace distrun::backend::mpi_plugin {

bool says_gpu_aware(void* library) {
  void* const query = ::dlsym(library, "MPIX_Query_cuda_support");
  return query != nullptr && reinterpret_cast<int (*)()>(query)() == 1;
}

}  // namespace distrun::backend::mpi_plugin
