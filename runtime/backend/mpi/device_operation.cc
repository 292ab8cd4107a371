#include "runtime/backend/mpi/device_operation.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "runtime/backend/mpi/devices.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::mpi_plugin {
namespace {

// Each piece costs a kernel launch and an event on each member, about ten microseconds.
constexpr std::uint64_t kDevicePieceBytes = 4 << 20;
constexpr std::uint64_t kDeviceAlignment = 256;

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

std::uint64_t sum_of(const std::uint64_t* counts, std::uint64_t members) {
  return std::accumulate(counts, counts + members, std::uint64_t{0});
}

// For bool: the logical or (or the logical and) of all members' values. The kernels make sure that they are 0 or 1.
cuda_parts::Combine combine_of(const distrun_backend_operation& operation) {
  const bool is_bool = plugin::dtype_of(operation) == DType::kBool;
  switch (plugin::reduce_of(operation)) {
    case ReduceOp::kMin:
      return cuda_parts::kCombineMin;
    case ReduceOp::kMax:
      return cuda_parts::kCombineMax;
    case ReduceOp::kProduct:
      return is_bool ? cuda_parts::kCombineMin : cuda_parts::kCombineProduct;
    default:
      return is_bool ? cuda_parts::kCombineMax : cuda_parts::kCombineSum;
  }
}

// MPI's type of this size. It is used here only to count elements.
Handle type_of_size(const Constants& is, std::uint64_t bytes) {
  const DType by_size[] = {DType::kU8, DType::kF16, DType::kI32, DType::kI64};
  return is.types[static_cast<std::size_t>(by_size[std::countr_zero(bytes)])];
}

// For a reduction: the elements whose final sum each member computes.
std::vector<Range> blocks_of(const distrun_backend_operation& operation, int members) {
  if (operation.kind == DISTRUN_BACKEND_ALLREDUCE) {
    return even_blocks(cuda_parts::total_count(operation), members);
  }
  std::vector<Range> parts;
  std::uint64_t first = 0;
  for (std::uint64_t member = 0; member < static_cast<std::uint64_t>(members); ++member) {
    parts.push_back({.first = first, .count = operation.counts[member]});
    first += operation.counts[member];
  }
  return parts;
}

// The members as a binomial tree, numbered from the root. A parent's number is its child's number without the lowest
// set bit.
struct Tree {
  std::uint64_t members;
  std::uint64_t root;
  std::uint64_t number;  // of this member

  Tree(const Channel& channel, std::int32_t its_root)
      : members(static_cast<std::uint64_t>(channel.members)),
        root(static_cast<std::uint64_t>(its_root)),
        number((static_cast<std::uint64_t>(channel.index) + members - root) % members) {}
  [[nodiscard]] int member(std::uint64_t its_number) const { return static_cast<int>((its_number + root) % members); }
};

Status receive_from_parent(Messages& messages, const Tree& tree, std::byte* to, std::uint64_t bytes) {
  if (tree.number == 0) return {};
  return messages.receive(to, bytes, tree.member(tree.number & (tree.number - 1)));
}

Status send_to_children(Messages& messages, const Tree& tree, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t bound = tree.number == 0 ? std::bit_ceil(tree.members) : tree.number & (~tree.number + 1);
  for (std::uint64_t bit = bound / 2; bit > 0; bit /= 2) {  // the largest branch first
    if (tree.number + bit >= tree.members) continue;
    DISTRUN_RETURN_IF_ERROR(messages.send(from, bytes, tree.member(tree.number + bit)));
  }
  return {};
}

// Where the blocks of all members are in the plug-in's memory.
struct BlocksAt {
  std::byte* result;
  const std::byte* sent;  // for an all-to-all
  std::uint64_t unit;     // bytes per element
};

// Each member starts with a different peer.
Status exchange_blocks(Messages& messages, const Channel& channel, const distrun_backend_operation& operation,
                       const BlocksAt& at) {
  const auto members = static_cast<std::uint64_t>(channel.members);
  const auto index = static_cast<std::uint64_t>(channel.index);
  const bool gathers = operation.kind == DISTRUN_BACKEND_ALLGATHER;
  const std::uint64_t* counts = gathers ? operation.counts : operation.recv_counts;
  for (std::uint64_t offset = 1; offset < members; ++offset) {
    const std::uint64_t member = (index + members - offset) % members;
    DISTRUN_RETURN_IF_ERROR(messages.receive(at.result + sum_of(counts, member) * at.unit, counts[member] * at.unit,
                                             static_cast<int>(member)));
  }
  for (std::uint64_t offset = 1; offset < members; ++offset) {
    const std::uint64_t member = (index + offset) % members;
    const std::byte* from =
        gathers ? at.result + sum_of(counts, index) * at.unit : at.sent + sum_of(operation.counts, member) * at.unit;
    const std::uint64_t count = operation.counts[gathers ? index : member];
    DISTRUN_RETURN_IF_ERROR(messages.send(from, count * at.unit, static_cast<int>(member)));
  }
  return {};
}

// The destinations of the sums that are stored at `from`.
std::vector<cuda_parts::Piece> sums_of(const distrun_backend_operation& operation, std::uint64_t index,
                                       std::uint64_t unit, const std::byte* from) {
  if (operation.kind == DISTRUN_BACKEND_REDUCESCATTER) {
    return {{.from = from + sum_of(operation.counts, index) * unit,
             .to = operation.segments->output,
             .count = operation.counts[index]}};
  }
  std::vector<cuda_parts::Piece> pieces;
  for (std::uint64_t i = 0; i < operation.num_segments; ++i) {
    const distrun_backend_segment& segment = operation.segments[i];
    pieces.push_back({.from = from, .to = segment.output, .count = segment.count});
    from += segment.count * unit;
  }
  return pieces;
}

}  // namespace

DeviceOperation::DeviceOperation(const Channel& channel, const distrun_backend_operation& operation,
                                 std::uint64_t token)
    : channel_(channel),
      operation_(operation),
      token_(token),
      members_(static_cast<std::uint64_t>(channel.members)),
      index_(static_cast<std::uint64_t>(channel.index)),
      wire_(cuda_parts::wire_type(plugin::dtype_of(operation))),
      unit_(reduces() ? wire_.bytes : size_of(plugin::dtype_of(operation))),
      messages_(channel) {}

bool DeviceOperation::reduces() const { return traits_of(plugin::kind_of(operation_)).reduces; }

Status DeviceOperation::test() {
  return operation_.kind == DISTRUN_BACKEND_BARRIER ? test_barrier() : test_on_device();
}

Status DeviceOperation::test_barrier() {
  if (stage_ == Stage::kNew) DISTRUN_RETURN_IF_ERROR(messages_.barrier());
  stage_ = Stage::kMoving;
  DISTRUN_RETURN_IF_ERROR(messages_.test());
  if (messages_.done()) stage_ = Stage::kDone;
  return {};
}

Status DeviceOperation::test_on_device() {
  if (stage_ == Stage::kNew) {
    auto found = find_gpu(operation_.device_index);
    if (!found.ok()) return found.status();
    gpu_ = *found;
    channel_.process->on_gpu(*gpu_);
  }
  const cuda_parts::Current scope = gpu_->current();
  if (stage_ == Stage::kNew) DISTRUN_RETURN_IF_ERROR(pack());
  if (stage_ == Stage::kPacking) {
    const auto packed = passed(event_);
    if (!packed.ok()) return packed.status();
    if (!*packed) return {};
    stage_ = Stage::kMoving;
    DISTRUN_RETURN_IF_ERROR(begin_messages());
  }
  if (stage_ == Stage::kMoving) DISTRUN_RETURN_IF_ERROR(move());
  if (stage_ == Stage::kUnpacking) {
    const auto over = passed(event_);
    if (!over.ok()) return over.status();
    if (*over) stage_ = Stage::kDone;
  }
  return {};
}

void DeviceOperation::finish() {
  if (gpu_ != nullptr) gpu_->blocks().give_back(std::exchange(block_, {}));
}

bool DeviceOperation::let_go() {
  if (stage_ != Stage::kPacking && stage_ != Stage::kUnpacking) return true;
  const cuda_parts::Current scope = gpu_->current();
  if (event_ == nullptr && !record(event_).ok()) return true;
  const auto reached = gpu_->reached(event_);
  return !reached.ok() || *reached;
}

Status DeviceOperation::record(cuda_parts::CuEvent& event) {
  auto made = gpu_->event_here();
  if (!made.ok()) return made.status();
  event = *made;
  return {};
}

Result<bool> DeviceOperation::passed(cuda_parts::CuEvent& event) {
  auto reached = gpu_->reached(event);
  if (reached.ok() && *reached) gpu_->give_back(std::exchange(event, nullptr));
  return reached;
}

Status DeviceOperation::take_memory() {
  std::uint64_t bytes = cuda_parts::total_count(operation_) * unit_;
  std::uint64_t behind = 0;  // bytes after the result: an all-to-all's input, or a ring's slots
  if (operation_.kind == DISTRUN_BACKEND_ALLGATHER) bytes = sum_of(operation_.counts, members_) * unit_;
  if (operation_.kind == DISTRUN_BACKEND_ALLTOALL) {
    behind = bytes;
    bytes = sum_of(operation_.recv_counts, members_) * unit_;
  }
  if (reduces() && members_ > 1) {
    const std::uint64_t largest = std::ranges::max(blocks_of(operation_, channel_.members), {}, &Range::count).count;
    slot_bytes_ = aligned(std::min(largest * unit_, kDevicePieceBytes));
    behind = slot_bytes_ * kRingSlots;
  }
  if (bytes + behind == 0) return {};
  auto block = gpu_->blocks().take(aligned(bytes) + behind);
  if (!block.ok()) return block.status();
  block_ = *block;
  result_ = block_.memory;
  sent_ = received_ = block_.memory + aligned(bytes);
  return {};
}

// After an error, work may be left on the stream.
Status DeviceOperation::pack() {
  DISTRUN_RETURN_IF_ERROR(take_memory());
  stage_ = Stage::kPacking;
  for (std::uint64_t i = 0; i < operation_.num_marks; ++i) {
    DISTRUN_RETURN_IF_ERROR(gpu_->wait(*static_cast<const cuda_parts::Mark*>(operation_.marks[i])));
  }
  DISTRUN_RETURN_IF_ERROR(pack_tensors());
  return record(event_);
}

Status DeviceOperation::pack_tensors() {
  std::byte* to = result_;
  if (reduces()) {
    const bool is_bool = plugin::dtype_of(operation_) == DType::kBool;
    std::vector<cuda_parts::Piece> pieces;
    for (std::uint64_t i = 0; i < operation_.num_segments; ++i) {
      const distrun_backend_segment& segment = operation_.segments[i];
      pieces.push_back({.from = segment.input, .to = to, .count = segment.count});
      to += segment.count * unit_;
    }
    return gpu_->kernels().run("pack", wire_, {.factor = is_bool ? 1.0 : operation_.prescale}, pieces);
  }
  const distrun_backend_segment& first = *operation_.segments;
  if (operation_.kind == DISTRUN_BACKEND_ALLGATHER) {
    return gpu_->copy(first.input, to + sum_of(operation_.counts, index_) * unit_, first.count * unit_);
  }
  if (operation_.kind == DISTRUN_BACKEND_ALLTOALL) {
    DISTRUN_RETURN_IF_ERROR(gpu_->copy(first.input, sent_, first.count * unit_));
    const std::byte* own = static_cast<const std::byte*>(first.input) + sum_of(operation_.counts, index_) * unit_;
    return gpu_->copy(own, to + sum_of(operation_.recv_counts, index_) * unit_, operation_.counts[index_] * unit_);
  }
  if (operation_.root != channel_.index) return {};
  for (std::uint64_t i = 0; i < operation_.num_segments; ++i) {
    const distrun_backend_segment& segment = operation_.segments[i];
    DISTRUN_RETURN_IF_ERROR(gpu_->copy(segment.input, to, segment.count * unit_));
    to += segment.count * unit_;
  }
  return {};
}

Status DeviceOperation::begin_messages() {
  if (reduces()) {
    ring_ = std::make_unique<Ring>(channel_,
                                   RingWork{.input = result_,
                                            .output = result_,
                                            .unit = unit_,
                                            .type = type_of_size(channel_.process->library().is, unit_),
                                            .blocks = blocks_of(operation_, channel_.members),
                                            .scatters = operation_.kind == DISTRUN_BACKEND_REDUCESCATTER,
                                            .piece_bytes = kDevicePieceBytes},
                                   static_cast<RingSide&>(*this));
    return {};
  }
  if (operation_.kind == DISTRUN_BACKEND_BROADCAST) {
    return receive_from_parent(messages_, Tree(channel_, operation_.root), result_,
                               cuda_parts::total_count(operation_) * unit_);
  }
  return exchange_blocks(messages_, channel_, operation_, {.result = result_, .sent = sent_, .unit = unit_});
}

Status DeviceOperation::move() {
  if (ring_) {
    DISTRUN_RETURN_IF_ERROR(ring_->test());
    return ring_->done() ? unpack() : Status();
  }
  DISTRUN_RETURN_IF_ERROR(messages_.test());
  if (messages_.done() && operation_.kind == DISTRUN_BACKEND_BROADCAST && !std::exchange(cast_on_, true)) {
    DISTRUN_RETURN_IF_ERROR(send_to_children(messages_, Tree(channel_, operation_.root), result_,
                                             cuda_parts::total_count(operation_) * unit_));
    DISTRUN_RETURN_IF_ERROR(messages_.test());
  }
  return messages_.done() ? unpack() : Status();
}

Status DeviceOperation::unpack() {
  stage_ = Stage::kUnpacking;
  DISTRUN_RETURN_IF_ERROR(unpack_tensors());
  return record(event_);
}

Status DeviceOperation::unpack_tensors() {
  const std::byte* from = result_;
  if (operation_.kind == DISTRUN_BACKEND_ALLGATHER) {
    return gpu_->copy(from, operation_.segments->output, sum_of(operation_.counts, members_) * unit_);
  }
  if (operation_.kind == DISTRUN_BACKEND_ALLTOALL) {
    return gpu_->copy(from, operation_.segments->output, sum_of(operation_.recv_counts, members_) * unit_);
  }
  if (operation_.kind == DISTRUN_BACKEND_BROADCAST) {
    for (std::uint64_t i = 0; i < operation_.num_segments; ++i) {
      const distrun_backend_segment& segment = operation_.segments[i];
      const bool has_it = operation_.root == channel_.index && segment.input == segment.output;
      if (!has_it) DISTRUN_RETURN_IF_ERROR(gpu_->copy(from, segment.output, segment.count * unit_));
      from += segment.count * unit_;
    }
    return {};
  }
  const bool is_bool = plugin::dtype_of(operation_) == DType::kBool;
  const auto finish = kernels::finish_of(plugin::reduce_of(operation_), operation_.postscale, members_);
  return gpu_->kernels().run("unpack", wire_, is_bool ? kernels::Finish{} : finish,
                             sums_of(operation_, index_, unit_, result_));
}

Result<std::byte*> DeviceOperation::memory(std::size_t slot) { return received_ + slot * slot_bytes_; }

Status DeviceOperation::add(std::size_t slot, const Range& where, bool) {
  DISTRUN_RETURN_IF_ERROR(gpu_->kernels().combine(
      wire_, combine_of(operation_),
      {.from = received_ + slot * slot_bytes_, .to = result_ + where.first * unit_, .count = where.count}));
  return record(adding_[slot]);
}

}  // namespace distrun::backend::mpi_plugin
