// The plug-in's own memory for an operation, used if the program calls MPI too. Any call of MPI by the program may move
// operations that distrun has given up. Those must not access the tensors' memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/backend/mpi/library/channel.h"

namespace distrun::backend::mpi_plugin {

class OwnMemory {
 public:
  // Redirects input and output of `operation` to this memory. Error: kOutOfMemory.
  Status take(const Channel& channel, distrun_backend_operation& operation);
  // Call this when the operation is done: it copies the result to the output. Does nothing if take() was not called.
  void give_back();

 private:
  std::unique_ptr<std::byte[]> memory_;
  distrun_backend_segment segment_{};
  void* result_ = nullptr;  // null: this member needs no result
  std::size_t result_bytes_ = 0;
};

}  // namespace distrun::backend::mpi_plugin
