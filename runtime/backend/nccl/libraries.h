// The driver's library and NCCL in this process: what the program has loaded, else what its Python environment has,
// else the system's. Nothing here starts CUDA: a process that only asks what there is may still fork and use a GPU in
// its children.
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
  int nccl_version = 0;   // as NCCL counts: 22003 is 2.20.3
  std::string nccl_text;  // "NCCL 2.20.3"
};

// Both stay loaded. An error says what is missing and the cure.
Result<Libraries> load_libraries(const Loader& loader);

// Where the packages nvidia-* of PyPI, or Conda, may have put `name` (libnccl.so.2), given the file that this plug-in
// is.
std::vector<std::string> package_paths(const std::string& plugin_file, const std::string& name);

}  // namespace distrun::backend::nccl_plugin
