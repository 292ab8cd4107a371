// One operation on GPU tensors, with a GPU-aware MPI. Such an MPI accepts device memory in messages and in blocking
// collectives, but not in nonblocking collectives. So here all operations consist of messages, and distrun's kernels
// compute the sums.
//
// An operation has three stages. None of them blocks; test() is called until they are done:
// 1. The plug-in's stream waits for the operation's marks. A kernel copies the tensors, scaled and converted, into the
//    plug-in's device memory. An event follows it.
// 2. After that event: messages, only between memory of the plug-in. MPI never gets a tensor, so MPI may do anything
//    with its requests after the operation is given up. On a ring, a kernel adds each received piece, and the sum is
//    sent on after the kernel's event.
// 3. A kernel copies the result into the tensors, finished and converted back. The operation is done after its event.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/backend/mpi/messages.h"
#include "runtime/backend/mpi/ring.h"

namespace distrun::backend::mpi_plugin {

class DeviceOperation final : private RingSide {
 public:
  // The memory that `operation` points to must outlive this object, or its last call.
  DeviceOperation(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token);

  // Call all of these with a Turn held (library/process.h). The operations of a channel are tested one after the other,
  // on all members.
  Status test();
  [[nodiscard]] bool done() const { return stage_ == Stage::kDone; }
  void finish();  // call it when done
  // Gives up the operation for good, instead of finish(). Returns true if nothing on the device touches the tensors any
  // more. If this cannot be determined, the process has lost the device, and the device touches nothing.
  bool let_go();
  [[nodiscard]] std::uint64_t token() const { return token_; }

 private:
  enum class Stage { kNew, kPacking, kMoving, kUnpacking, kDone };

  Status test_barrier();
  Status test_on_device();
  [[nodiscard]] bool reduces() const;
  Status pack();
  Status take_memory();
  Status pack_tensors();
  Status move();
  Status begin_messages();
  Status unpack();
  Status unpack_tensors();
  Status record(cuda_parts::CuEvent& event);
  Result<bool> passed(cuda_parts::CuEvent& event);  // gives the event back once it is reached

  Result<std::byte*> memory(std::size_t slot) override;
  Status add(std::size_t slot, const Range& where, bool last) override;
  Result<bool> added(std::size_t slot) override { return passed(adding_[slot]); }

  const Channel channel_;
  const distrun_backend_operation operation_;
  const std::uint64_t token_;
  const std::uint64_t members_;
  const std::uint64_t index_;
  cuda_parts::WireType wire_;  // for a reduction
  std::uint64_t unit_;         // bytes per element in messages
  Stage stage_ = Stage::kNew;
  cuda_parts::Gpu* gpu_ = nullptr;
  cuda_parts::Block block_;
  std::byte* result_ = nullptr;    // in the block: the data to unpack; for an all-to-all, the received data
  std::byte* sent_ = nullptr;      // in the block, for an all-to-all: the data to send
  std::byte* received_ = nullptr;  // in the block, for a ring: its slots
  std::uint64_t slot_bytes_ = 0;
  cuda_parts::CuEvent event_ = nullptr;
  std::array<cuda_parts::CuEvent, kRingSlots> adding_{};
  std::unique_ptr<Ring> ring_;
  Messages messages_;
  bool cast_on_ = false;  // for a broadcast: the data has been sent on to the children
};

}  // namespace distrun::backend::mpi_plugin
