// The driver's library and NCCL in this process. The program's loaded libraries come first, then those of its Python
// environment, then the system's. Nothing here initialises CUDA: a process that only lists the backends may still fork
// and use a GPU in its children.
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/cuda/cuda_api.h"
#include "runtime/backend/cuda/loader.h"
#include "runtime/backend/nccl/nccl_api.h"
#include "runtime/base/status.h"

namespace distrun::backend::nccl_plugin {

struct Libraries {
  CudaApi cuda;
  NcclApi nccl;
  int nccl_version = 0;   // in NCCL's numbers: 22003 is 2.20.3
  std::string nccl_text;  // "NCCL 2.20.3"
};

// Both libraries stay loaded. An error says what is missing and how to fix it.
Result<Libraries> load_libraries(const Loader& loader);

// The paths where PyPI's packages nvidia-* or Conda may have installed `name` (libnccl.so.2). `plugin_file` is the file
// of this plug-in.
std::vector<std::string> package_paths(const std::string& plugin_file, const std::string& name);

}  // namespace distrun::backend::nccl_plugin
