// The MPI library of this process: the one that the program has loaded, else the one that its launcher belongs to.
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

// Both stay loaded. An error says what was not found and the cure.
Result<Library> loaded_library();  // kNotInitialized: the program has loaded none; kUnsupported: one of an unknown ABI
Result<Library> load_library(std::vector<Abi> in_this_order);

}  // namespace distrun::backend::mpi_plugin
