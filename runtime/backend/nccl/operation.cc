#include "runtime/backend/nccl/operation.h"

#include <numeric>

#include "runtime/backend/nccl/communicator.h"

namespace distrun::backend::nccl_plugin {
namespace {

bool reduces(const distrun_backend_operation& operation) { return traits_of(plugin::kind_of(operation)).reduces; }

const std::byte* input_of(const distrun_backend_segment& segment) {
  return static_cast<const std::byte*>(segment.input);
}
std::byte* output_of(const distrun_backend_segment& segment) { return static_cast<std::byte*>(segment.output); }

}  // namespace

NcclOperation::NcclOperation(Gpu& gpu, const NcclApi& nccl, const distrun_backend_operation& operation,
                             std::size_t members, std::size_t index)
    : gpu_(gpu),
      nccl_(nccl),
      operation_(operation),
      members_(members),
      index_(index),
      unit_(size_of(plugin::dtype_of(operation))) {
  if (reduces(operation)) plan_ = plan_reduce(operation, members, index);
}

Status NcclOperation::check(NcclResult code, const char* call) const { return nccl_status(nccl_, comm_, code, call); }

Status NcclOperation::start(NcclComm comm) {
  comm_ = comm;
  for (std::uint64_t i = 0; i < operation_.num_marks; ++i) {
    DISTRUN_RETURN_IF_ERROR(gpu_.wait(*static_cast<const Mark*>(operation_.marks[i])));
  }
  if (operation_.num_segments == 0 && operation_.kind != DISTRUN_BACKEND_BARRIER) return {};
  switch (operation_.kind) {
    case DISTRUN_BACKEND_ALLREDUCE:
      return allreduce();
    case DISTRUN_BACKEND_ALLGATHER:
      return allgather();
    case DISTRUN_BACKEND_BROADCAST:
      return broadcast();
    case DISTRUN_BACKEND_ALLTOALL:
      return alltoall();
    case DISTRUN_BACKEND_REDUCESCATTER:
      return reducescatter();
    default:
      return barrier();
  }
}

Status NcclOperation::finish() {
  if (outputs_.empty()) return {};
  return gpu_.kernels().run("unpack", plan_.wire, plan_.finish, outputs_);
}

// Packs all inputs one after the other, scaled and converted.
Status NcclOperation::pack() {
  auto buffer = gpu_.buffer(plan_.buffer_bytes);
  if (!buffer.ok()) return buffer.status();
  buffer_ = *buffer;
  std::vector<Piece> pieces;
  std::byte* to = buffer_;
  for (std::uint64_t i = 0; i < operation_.num_segments; ++i) {
    const distrun_backend_segment& segment = operation_.segments[i];
    pieces.push_back({.from = segment.input, .to = to, .count = segment.count});
    to += segment.count * plan_.wire.bytes;
  }
  return gpu_.kernels().run("pack", plan_.wire, {.factor = plan_.prescale}, pieces);
}

Status NcclOperation::allreduce() {
  const std::size_t total = total_count(operation_);
  if (total == 0) return {};
  if (plan_.packs) DISTRUN_RETURN_IF_ERROR(pack());
  const distrun_backend_segment& first = *operation_.segments;
  const std::byte* in = plan_.packs ? buffer_ : input_of(first);
  std::byte* out = plan_.packs ? buffer_ : output_of(first);
  if (plan_.unpacks) {
    const std::byte* from = out;
    for (std::uint64_t i = 0; i < operation_.num_segments; ++i) {
      const distrun_backend_segment& segment = operation_.segments[i];
      outputs_.push_back({.from = from, .to = segment.output, .count = segment.count});
      from += segment.count * plan_.wire.bytes;
    }
  }
  return check(nccl_.all_reduce(in, out, total, plan_.type, plan_.op, comm_, gpu_.stream()), "ncclAllReduce");
}

Status NcclOperation::reducescatter() {
  const distrun_backend_segment& segment = *operation_.segments;
  if (segment.count == 0) return {};
  if (plan_.packs) DISTRUN_RETURN_IF_ERROR(pack());
  const std::byte* in = plan_.packs ? buffer_ : input_of(segment);
  std::byte* out = plan_.wire.converts ? buffer_ + segment.count * plan_.wire.bytes : output_of(segment);
  if (plan_.unpacks) outputs_.push_back({.from = out, .to = segment.output, .count = operation_.counts[index_]});
  if (!all_equal(operation_.counts, members_)) return reduce_parts(in, out);
  return check(nccl_.reduce_scatter(in, out, operation_.counts[0], plan_.type, plan_.op, comm_, gpu_.stream()),
               "ncclReduceScatter");
}

// For parts of different sizes: reduces each part to its owner.
Status NcclOperation::reduce_parts(const std::byte* in, std::byte* out) {
  DISTRUN_RETURN_IF_ERROR(check(nccl_.group_start(), "ncclGroupStart"));
  Status status;
  for (std::size_t member = 0; member < members_ && status.ok(); ++member) {
    const std::uint64_t count = operation_.counts[member];
    if (count == 0) continue;
    std::byte* to = member == index_ ? out : nullptr;
    status = check(nccl_.reduce(in, to, count, plan_.type, plan_.op, static_cast<int>(member), comm_, gpu_.stream()),
                   "ncclReduce");
    in += count * plan_.wire.bytes;
  }
  return grouped(status);
}

Status NcclOperation::grouped(Status calls) {
  const Status ended = check(nccl_.group_end(), "ncclGroupEnd");
  return calls.ok() ? ended : calls;
}

Status NcclOperation::allgather() {
  const distrun_backend_segment& segment = *operation_.segments;
  const std::uint64_t* counts = operation_.counts;
  if (std::accumulate(counts, counts + members_, std::uint64_t{0}) == 0) return {};
  if (all_equal(counts, members_)) {
    return check(
        nccl_.all_gather(segment.input, segment.output, segment.count * unit_, kNcclUint8, comm_, gpu_.stream()),
        "ncclAllGather");
  }
  DISTRUN_RETURN_IF_ERROR(check(nccl_.group_start(), "ncclGroupStart"));
  Status status;
  std::byte* block = output_of(segment);
  for (std::size_t member = 0; member < members_ && status.ok(); ++member) {
    const std::size_t bytes = counts[member] * unit_;
    if (bytes == 0) continue;
    const void* from = member == index_ ? segment.input : block;
    status = check(nccl_.broadcast(from, block, bytes, kNcclUint8, static_cast<int>(member), comm_, gpu_.stream()),
                   "ncclBroadcast");
    block += bytes;
  }
  return grouped(status);
}

Status NcclOperation::broadcast() {
  const bool is_root = static_cast<std::size_t>(operation_.root) == index_;
  DISTRUN_RETURN_IF_ERROR(check(nccl_.group_start(), "ncclGroupStart"));
  Status status;
  for (std::uint64_t i = 0; i < operation_.num_segments && status.ok(); ++i) {
    const distrun_backend_segment& segment = operation_.segments[i];
    if (segment.count == 0) continue;
    const void* in = is_root ? segment.input : segment.output;
    status = check(
        nccl_.broadcast(in, segment.output, segment.count * unit_, kNcclUint8, operation_.root, comm_, gpu_.stream()),
        "ncclBroadcast");
  }
  return grouped(status);
}

Status NcclOperation::alltoall() {
  const distrun_backend_segment& segment = *operation_.segments;
  const std::byte* from = input_of(segment);
  std::byte* to = output_of(segment);
  DISTRUN_RETURN_IF_ERROR(check(nccl_.group_start(), "ncclGroupStart"));
  Status status;
  for (std::size_t member = 0; member < members_ && status.ok(); ++member) {
    const std::size_t sent = operation_.counts[member] * unit_;
    const std::size_t received = operation_.recv_counts[member] * unit_;
    const int peer = static_cast<int>(member);
    if (member == index_) {
      status = gpu_.copy(from, to, sent);
    } else {
      if (sent > 0) status = check(nccl_.send(from, sent, kNcclUint8, peer, comm_, gpu_.stream()), "ncclSend");
      if (received > 0 && status.ok()) {
        status = check(nccl_.recv(to, received, kNcclUint8, peer, comm_, gpu_.stream()), "ncclRecv");
      }
    }
    from += sent;
    to += received;
  }
  return grouped(status);
}

Status NcclOperation::barrier() {
  auto flag = gpu_.buffer(1);
  if (!flag.ok()) return flag.status();
  return check(nccl_.all_reduce(*flag, *flag, 1, kNcclUint8, kNcclMax, comm_, gpu_.stream()), "ncclAllReduce");
}

}  // namespace distrun::backend::nccl_plugin
