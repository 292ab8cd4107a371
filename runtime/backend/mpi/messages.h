// Sends bytes from one member to another, in messages whose size MPI can count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/backend/mpi/library/channel.h"

namespace distrun::backend::mpi_plugin {

class Messages {
 public:
  explicit Messages(const Channel& channel) : channel_(channel) {}

  // Call these four methods with a Turn held (library/process.h). Messages between two members are distinguished by
  // their order.
  Status receive(std::byte* to, std::uint64_t bytes, int from);
  Status send(const std::byte* from, std::uint64_t bytes, int to);
  Status barrier();
  Status test();  // makes MPI progress
  [[nodiscard]] bool done() const { return first_open_ == requests_.size(); }

 private:
  Handle* next_request();

  const Channel channel_;
  std::vector<Handle> requests_;
  std::size_t first_open_ = 0;
};

}  // namespace distrun::backend::mpi_plugin
