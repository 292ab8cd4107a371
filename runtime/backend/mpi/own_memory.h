// Memory of the plug-in's own for an operation, in a process whose program calls MPI too: what has been given up is
// moved by the program's next call, whatever that is for, and must not be in the tensors' memory then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/backend/mpi/library/channel.h"

namespace distrun::backend::mpi_plugin {

class OwnMemory {
 public:
  // `operation` has its input and its output here from now on. kOutOfMemory.
  Status take(const Channel& channel, distrun_backend_operation& operation);
  // The operation is done: its result goes to where it belongs. Nothing where nothing was taken.
  void give_back();

 private:
  std::unique_ptr<std::byte[]> memory_;
  distrun_backend_segment segment_{};
  void* result_ = nullptr;  // null: nobody reads it
  std::size_t result_bytes_ = 0;
};

}  // namespace distrun::backend::mpi_plugin
