// One operation on tensors of a GPU, with a GPU-aware MPI. Such a one takes device memory in messages, and in
// collective operations that block, but not in nonblocking ones: so all are made of messages here, and sums are our
// kernels'.
//
// In three stages, none of which waits; test() is called until they are over:
// 1. Our stream waits for the operation's marks; a kernel copies the tensors, scaled and converted, into memory of ours
//    on the device. An event behind it.
// 2. When that is reached: messages, between memory of ours only. MPI never gets a tensor, so what it still has when an
//    operation is given up may be moved whenever it likes. What goes around the ring is added by a kernel, whose event
//    is reached before the sum is sent on.
// 3. A kernel copies the result into the tensors, finished and converted back; when its event is reached it is over.
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
  // What `operation` points to outlives this, or its last call.
  DeviceOperation(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token);

  // All on a thread that has its turn. All members' operations on a channel are tested one after the other.
  Status test();
  [[nodiscard]] bool done() const { return stage_ == Stage::kDone; }
  void finish();  // when done
  // Instead, for good: whether nothing on the device touches the tensors any more. Where that cannot be told the device
  // is lost to this process, and touches nothing.
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
  Result<bool> passed(cuda_parts::CuEvent& event);  // gives it back then

  Result<std::byte*> memory(std::size_t slot) override;
  Status add(std::size_t slot, const Range& where, bool last) override;
  Result<bool> added(std::size_t slot) override { return passed(adding_[slot]); }

  const Channel channel_;
  const distrun_backend_operation operation_;
  const std::uint64_t token_;
  const std::uint64_t members_;
  const std::uint64_t index_;
  cuda_parts::WireType wire_;  // of a reduction
  std::uint64_t unit_;         // bytes of an element on its way
  Stage stage_ = Stage::kNew;
  cuda_parts::Gpu* gpu_ = nullptr;
  cuda_parts::Block block_;
  std::byte* result_ = nullptr;    // in the block: what is unpacked; of an all-to-all what comes
  std::byte* sent_ = nullptr;      // in the block, of an all-to-all: what goes
  std::byte* received_ = nullptr;  // in the block, of a ring: its slots
  std::uint64_t slot_bytes_ = 0;
  cuda_parts::CuEvent event_ = nullptr;
  std::array<cuda_parts::CuEvent, kRingSlots> adding_{};
  std::unique_ptr<Ring> ring_;
  Messages messages_;
  bool cast_on_ = false;  // of a broadcast: what came has been sent to the children
};

}  // namespace distrun::backend::mpi_plugin
