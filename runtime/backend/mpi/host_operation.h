// One operation in flight, as a number of MPI calls. MPI counts elements in ints, so an operation with more elements
// takes several calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/backend/mpi/host_ring.h"
#include "runtime/backend/mpi/library/channel.h"
#include "runtime/backend/mpi/own_memory.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::mpi_plugin {

inline constexpr std::uint32_t kKinds = 1U << DISTRUN_BACKEND_ALLREDUCE | 1U << DISTRUN_BACKEND_ALLGATHER |
                                        1U << DISTRUN_BACKEND_BROADCAST | 1U << DISTRUN_BACKEND_BARRIER |
                                        1U << DISTRUN_BACKEND_ALLTOALL | 1U << DISTRUN_BACKEND_REDUCESCATTER;

class HostOperation {
 public:
  // The memory that `operation` points to must outlive this object, or its last call.
  HostOperation(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token);

  // Call both with a Turn held (library/process.h). All members start the same operations in the same order.
  Status start();
  Status test();  // makes MPI progress

  [[nodiscard]] bool done() const { return ring_ ? ring_->done() : first_open_ == requests_.size(); }
  // Whether the operation uses the ring. Only the first one that does may be tested, because their messages are
  // distinguished by their order.
  [[nodiscard]] bool goes_around() const { return ring_ != nullptr; }
  [[nodiscard]] std::uint64_t token() const { return token_; }
  void finish();  // call it when done: completes the arithmetic and copies the result back

 private:
  Status allreduce();
  Status exchange();
  void add_exchanged();
  Status allgather();
  Status allgather_in_pieces();
  Status broadcast(std::byte* data, std::uint64_t count, int root);
  Status alltoall();
  Status reducescatter();
  Status reducescatter_in_pieces();
  Status barrier();

  Handle* next_request();
  [[nodiscard]] Status check(int code, const char* call) const { return channel_.check(code, call); }
  [[nodiscard]] Handle type() const { return channel_.type_of(operation_); }
  // `counts` and their offsets as ints that live as long as this object.
  struct Layout {
    std::vector<int> counts;
    std::vector<int> offsets;
  };
  const Layout& layout(const std::uint64_t* counts);

  Channel channel_;
  distrun_backend_operation operation_;
  OwnMemory own_;
  std::uint64_t token_;
  const Functions& call_;
  std::size_t unit_;
  std::byte* output_ = nullptr;
  const std::byte* input_ = nullptr;
  std::uint64_t count_ = 0;
  std::unique_ptr<HostRing> ring_;          // if set, used instead of the members below
  std::unique_ptr<std::byte[]> exchanged_;  // the inputs of all members, one after the other
  std::vector<Handle> requests_;
  std::size_t first_open_ = 0;
  std::vector<std::unique_ptr<Layout>> layouts_;
};

}  // namespace distrun::backend::mpi_plugin
