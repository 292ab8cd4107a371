// Bytes from one member to another, in messages that MPI can count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/backend/mpi/library/channel.h"

namespace distrun::backend::mpi_plugin {

class Messages {
 public:
  explicit Messages(const Channel& channel) : channel_(channel) {}

  // On a thread that has its turn, as for the next three. Two members' messages are told apart by their order.
  Status receive(std::byte* to, std::uint64_t bytes, int from);
  Status send(const std::byte* from, std::uint64_t bytes, int to);
  Status barrier();
  Status test();  // moves MPI
  [[nodiscard]] bool done() const { return first_open_ == requests_.size(); }

 private:
  Handle* next_request();

  const Channel channel_;
  std::vector<Handle> requests_;
  std::size_t first_open_ = 0;
};

}  // namespace distrun::backend::mpi_plugin
