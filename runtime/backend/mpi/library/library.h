// The MPI library of this process: the one that the program has loaded, otherwise the one of its launcher.
#pragma once

#include <string>
#include <vector>

#include "runtime/backend/mpi/library/abi.h"
#include "runtime/base/status.h"

namespace distrun::backend::mpi_plugin {

enum class Abi { kOpenMpi, kStandard };

struct Library {
  Abi abi = Abi::kOpenMpi;
  std::string file;
  Functions call;
  Constants is;
  void* opened = nullptr;
};

// Both libraries stay loaded. An error says what was not found and how to fix it.
Result<Library> loaded_library();  // kNotInitialized: the program has loaded none; kUnsupported: its ABI is unknown
Result<Library> load_library(std::vector<Abi> in_this_order);

}  // namespace distrun::backend::mpi_plugin
