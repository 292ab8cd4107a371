#include "runtime/backend/mpi/host_ring.h"

#include <algorithm>
#include <new>

#include "runtime/base/types.h"

namespace distrun::backend::mpi_plugin {
namespace {

RingWork work_of(const Channel& channel, const distrun_backend_operation& operation) {
  return {.input = static_cast<const std::byte*>(operation.segments->input),
          .output = static_cast<std::byte*>(operation.segments->output),
          .unit = size_of(plugin::dtype_of(operation)),
          .type = channel.type_of(operation),
          .blocks = even_blocks(operation.segments->count, channel.members),
          .piece_bytes = kPieceBytes};
}

}  // namespace

bool HostRing::serves(const Channel& channel, const distrun_backend_operation& operation) {
  if (operation.kind != DISTRUN_BACKEND_ALLREDUCE || operation.num_segments == 0 || channel.members == 1) return false;
  return operation.segments->count * size_of(plugin::dtype_of(operation)) >= kRingBytes;
}

HostRing::HostRing(const Channel& channel, const distrun_backend_operation& operation)
    : channel_(channel), operation_(operation), ring_(channel, work_of(channel, operation), *this) {}

Result<std::byte*> HostRing::memory(std::size_t slot) {
  auto& memory = (*channel_.memory)[slot];
  if (!memory) memory.reset(new (std::nothrow) std::byte[kPieceBytes]);
  if (!memory) return Status(Errc::kOutOfMemory, "no memory for a piece of a tensor on its way");
  return memory.get();
}

Status HostRing::add(std::size_t slot, const Range& where, bool last) {
  const ReduceOp op = plugin::reduce_of(operation_);
  const DType dtype = plugin::dtype_of(operation_);
  const std::uint64_t at = where.first * size_of(dtype);
  const auto members = static_cast<std::size_t>(channel_.members);
  const kernels::Reduction how = {
      .dtype = dtype, .op = op, .finish = last ? kernels::finish_of(op, 1.0, members) : kernels::Finish{}};
  const std::array<const std::byte*, 2> sources = {(*channel_.memory)[slot].get(),
                                                   static_cast<const std::byte*>(operation_.segments->input) + at};
  kernels::reduce(how, sources, static_cast<std::byte*>(operation_.segments->output) + at, where.count);
  return {};
}

}  // namespace distrun::backend::mpi_plugin
