#include "runtime/backend/mpi/ring.h"

#include <algorithm>
#include <new>

#include "runtime/base/types.h"

namespace distrun::backend::mpi_plugin {
bool Ring::serves(const Channel& channel, const distrun_backend_operation& operation) {
  if (operation.kind != DISTRUN_BACKEND_ALLREDUCE || operation.num_segments == 0 || channel.members == 1) return false;
  return operation.segments->count * size_of(plugin::dtype_of(operation)) >= kRingBytes;
}

Ring::Ring(const Channel& channel, const distrun_backend_operation& operation)
    : channel_(channel),
      operation_(operation),
      dtype_(plugin::dtype_of(operation)),
      unit_(size_of(dtype_)),
      input_(static_cast<const std::byte*>(operation.segments->input)),
      output_(static_cast<std::byte*>(operation.segments->output)),
      most_(std::min(kLargestCount, kPieceBytes / unit_)) {
  const std::uint64_t members = static_cast<std::uint64_t>(channel_.members);
  const std::uint64_t largest_block = (operation.segments->count + members - 1) / members;
  pieces_ = (largest_block + most_ - 1) / most_;
}

Ring::Range Ring::range(std::uint64_t piece, int block) const {
  const std::uint64_t members = static_cast<std::uint64_t>(channel_.members);
  const std::uint64_t count = operation_.segments->count;
  const auto begin_of = [&](std::uint64_t number) {
    return number * (count / members) + std::min(number, count % members);
  };
  const std::uint64_t begin = begin_of(static_cast<std::uint64_t>(block));
  const std::uint64_t size = begin_of(static_cast<std::uint64_t>(block) + 1) - begin;
  const std::uint64_t first = std::min(piece * most_, size);
  return {.first = begin + first, .count = std::min(most_, size - first)};
}

// The block that is so far behind this member's own.
int Ring::block(int offset) const {
  return ((channel_.index - offset) % channel_.members + channel_.members) % channel_.members;
}

// In step s a member passes on what it got in the step before, which began with its own block.
Status Ring::post(std::size_t number) {
  Slot& slot = slots_[number];
  const int sent_at = adds(slot.step) ? slot.step : slot.step - channel_.members;
  const Range out = range(slot.piece, block(sent_at));
  const Range in = range(slot.piece, block(sent_at + 1));
  const std::byte* from = (slot.step == 0 ? input_ : output_) + out.first * unit_;
  std::byte* to = adds(slot.step) ? slot.received : output_ + in.first * unit_;
  const int next = block(-1);
  const int previous = block(1);
  const int tag = kRingTag + static_cast<int>(number);
  slot.requests.fill(channel_.process->library().is.no_request);
  DISTRUN_RETURN_IF_ERROR(
      channel_.check(channel_.call().Irecv(to, static_cast<int>(in.count), channel_.type_of(operation_), previous, tag,
                                           channel_.comm, &slot.requests[0]),
                     "MPI_Irecv"));
  return channel_.check(channel_.call().Isend(from, static_cast<int>(out.count), channel_.type_of(operation_), next,
                                              tag, channel_.comm, &slot.requests[1]),
                        "MPI_Isend");
}

Status Ring::test() {
  if (!started_) {
    started_ = true;
    for (std::size_t number = 0; number < std::min<std::uint64_t>(kSlots, pieces_); ++number) {
      Slot& slot = slots_[number];
      slot.piece = number;
      auto& memory = (*channel_.memory)[number];
      if (!memory) memory.reset(new (std::nothrow) std::byte[kPieceBytes]);
      if (!memory) return {Errc::kOutOfMemory, "no memory for a piece of a tensor on its way"};
      slot.received = memory.get();
      DISTRUN_RETURN_IF_ERROR(post(number));
    }
  }
  for (bool moved = true; moved && !done();) {
    moved = false;
    for (std::size_t number = 0; number < kSlots; ++number) DISTRUN_RETURN_IF_ERROR(test(number, moved));
  }
  return {};
}

Status Ring::test(std::size_t number, bool& moved) {
  Slot& slot = slots_[number];
  if (slot.received == nullptr || slot.piece >= pieces_) return {};
  for (Handle& request : slot.requests) {
    int done = 0;
    DISTRUN_RETURN_IF_ERROR(channel_.check(channel_.call().Test(&request, &done, nullptr), "MPI_Test"));
    if (done == 0) return {};
  }
  moved = true;
  if (adds(slot.step)) add(slot);
  if (++slot.step == 2 * (channel_.members - 1)) {
    ++finished_;
    slot.piece += kSlots;
    slot.step = 0;
    if (slot.piece >= pieces_) return {};
  }
  return post(number);
}

// The last one to add to a block has the whole sum.
void Ring::add(Slot& slot) {
  const Range in = range(slot.piece, block(slot.step + 1));
  if (in.count == 0) return;
  const ReduceOp op = plugin::reduce_of(operation_);
  const bool last = !adds(slot.step + 1);
  const auto members = static_cast<std::size_t>(channel_.members);
  const kernels::Reduction how = {
      .dtype = dtype_, .op = op, .finish = last ? kernels::finish_of(op, 1.0, members) : kernels::Finish{}};
  const std::array<const std::byte*, 2> sources = {slot.received, input_ + in.first * unit_};
  kernels::reduce(how, sources, output_ + in.first * unit_, in.count);
}

}  // namespace distrun::backend::mpi_plugin
