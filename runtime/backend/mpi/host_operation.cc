#include "runtime/backend/mpi/host_operation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <numeric>
#include <span>

#include "runtime/base/types.h"

namespace distrun::backend::mpi_plugin {
namespace {

// Small all-reduces in small groups use an exchange: each member sends its input to each other one and adds what it
// receives. This takes the time of one message. MPI_Iallreduce must be moved through the steps of its schedule, and
// over TCP each step costs microseconds.
constexpr std::uint64_t kExchangedBytes = 4096;
constexpr int kMostExchanging = 8;

bool fits(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) <= kLargestCount;
}

}  // namespace

HostOperation::HostOperation(const Channel& channel, const distrun_backend_operation& operation, std::uint64_t token)
    : channel_(channel),
      operation_(operation),
      token_(token),
      call_(channel.call()),
      unit_(size_of(plugin::dtype_of(operation))) {}

Status HostOperation::start() {
  if (operation_.num_segments == 0) return operation_.kind == DISTRUN_BACKEND_BARRIER ? barrier() : Status();
  if (channel_.process->program_calls()) DISTRUN_RETURN_IF_ERROR(own_.take(channel_, operation_));
  if (HostRing::serves(channel_, operation_)) {
    ring_ = std::make_unique<HostRing>(channel_, operation_);
    return {};
  }
  input_ = static_cast<const std::byte*>(operation_.segments->input);
  output_ = static_cast<std::byte*>(operation_.segments->output);
  count_ = operation_.segments->count;
  const bool reduces = traits_of(plugin::kind_of(operation_)).reduces;
  if (reduces && channel_.members == 1) {  // MPI would only copy, but every nonzero byte of a bool must become 1
    if (count_ > 0) plugin::reduce_parts(operation_, {&input_, 1}, output_, count_);
    return {};
  }
  switch (operation_.kind) {
    case DISTRUN_BACKEND_ALLREDUCE:
      return allreduce();
    case DISTRUN_BACKEND_ALLGATHER:
      return fits({operation_.counts, static_cast<std::size_t>(channel_.members)}) ? allgather()
                                                                                   : allgather_in_pieces();
    case DISTRUN_BACKEND_BROADCAST:
      if (channel_.index == operation_.root && input_ != output_ && count_ > 0) {
        std::memcpy(output_, input_, count_ * unit_);
      }
      return broadcast(output_, count_, operation_.root);
    case DISTRUN_BACKEND_ALLTOALL:
      return alltoall();
    case DISTRUN_BACKEND_REDUCESCATTER:
      return fits({&count_, 1}) ? reducescatter() : reducescatter_in_pieces();
    default:
      return barrier();
  }
}

Status HostOperation::test() {
  if (ring_) return ring_->test();
  while (first_open_ < requests_.size()) {
    int done = 0;
    DISTRUN_RETURN_IF_ERROR(check(call_.Test(&requests_[first_open_], &done, nullptr), "MPI_Test"));
    if (done == 0) return {};
    ++first_open_;
  }
  return {};
}

void HostOperation::finish() {
  const auto members = static_cast<std::size_t>(channel_.members);
  const bool scatters = operation_.kind == DISTRUN_BACKEND_REDUCESCATTER;
  if (exchanged_) {
    add_exchanged();
  } else if (!ring_ && count_ > 0 && (scatters || operation_.kind == DISTRUN_BACKEND_ALLREDUCE)) {
    plugin::finish_average(operation_, members, output_, scatters ? operation_.counts[channel_.index] : count_);
  }
  own_.give_back();
}

Handle* HostOperation::next_request() {
  requests_.push_back(channel_.process->library().is.no_request);
  return &requests_.back();
}

const HostOperation::Layout& HostOperation::layout(const std::uint64_t* counts) {
  auto made = std::make_unique<Layout>();
  std::uint64_t at = 0;
  for (int member = 0; member < channel_.members; ++member) {
    made->counts.push_back(static_cast<int>(counts[member]));
    made->offsets.push_back(static_cast<int>(at));
    at += counts[member];
  }
  layouts_.push_back(std::move(made));
  return *layouts_.back();
}

Status HostOperation::allreduce() {
  if (channel_.members > 1 && channel_.members <= kMostExchanging && count_ > 0 && count_ * unit_ <= kExchangedBytes &&
      count_ <= kLargestCount) {
    return exchange();
  }
  auto op = channel_.process->op_of(plugin::dtype_of(operation_), plugin::reduce_of(operation_));
  if (!op.ok()) return op.status();
  return in_pieces(count_, [&](std::uint64_t at, int count) {
    const void* in = input_ == output_ ? kInPlace : input_ + at * unit_;
    return check(call_.Iallreduce(in, output_ + at * unit_, count, type(), *op, channel_.comm, next_request()),
                 "MPI_Iallreduce");
  });
}

Status HostOperation::exchange() {
  const std::size_t bytes = count_ * unit_;
  const auto count = static_cast<int>(count_);
  exchanged_.reset(new (std::nothrow) std::byte[bytes * static_cast<std::size_t>(channel_.members)]);
  if (!exchanged_) return {Errc::kOutOfMemory, "no memory for the data of the other members"};
  requests_.reserve(2 * static_cast<std::size_t>(channel_.members));
  for (int member = 0; member < channel_.members; ++member) {
    if (member == channel_.index) continue;
    std::byte* const to = exchanged_.get() + static_cast<std::size_t>(member) * bytes;
    DISTRUN_RETURN_IF_ERROR(
        check(call_.Irecv(to, count, type(), member, kMessageTag, channel_.comm, next_request()), "MPI_Irecv"));
  }
  for (int member = 0; member < channel_.members; ++member) {
    if (member == channel_.index) continue;
    DISTRUN_RETURN_IF_ERROR(
        check(call_.Isend(input_, count, type(), member, kMessageTag, channel_.comm, next_request()), "MPI_Isend"));
  }
  return {};
}

// Adds in member order, so that all members get the same bits.
void HostOperation::add_exchanged() {
  const auto members = static_cast<std::size_t>(channel_.members);
  std::array<const std::byte*, kMostExchanging> sources{};
  for (std::size_t member = 0; member < members; ++member) {
    const bool own = member == static_cast<std::size_t>(channel_.index);
    sources[member] = own ? input_ : exchanged_.get() + member * count_ * unit_;
  }
  plugin::reduce_parts(operation_, std::span(sources).first(members), output_, count_);
}

Status HostOperation::allgather() {
  const Layout& blocks = layout(operation_.counts);
  const auto self = static_cast<std::size_t>(channel_.index);
  const bool in_place = input_ == output_ + static_cast<std::size_t>(blocks.offsets[self]) * unit_;
  return check(call_.Iallgatherv(in_place ? kInPlace : input_, blocks.counts[self], type(), output_,
                                 blocks.counts.data(), blocks.offsets.data(), type(), channel_.comm, next_request()),
               "MPI_Iallgatherv");
}

Status HostOperation::allgather_in_pieces() {
  std::byte* block = output_;
  for (int member = 0; member < channel_.members; ++member) {
    const std::uint64_t count = operation_.counts[member];
    if (member == channel_.index && block != input_ && count > 0) std::memcpy(block, input_, count * unit_);
    DISTRUN_RETURN_IF_ERROR(broadcast(block, count, member));
    block += count * unit_;
  }
  return {};
}

Status HostOperation::broadcast(std::byte* data, std::uint64_t count, int root) {
  return in_pieces(count, [&](std::uint64_t at, int piece) {
    return check(call_.Ibcast(data + at * unit_, piece, type(), root, channel_.comm, next_request()), "MPI_Ibcast");
  });
}

// Uses messages between pairs and not MPI_Ialltoallv. A member knows only its own counts, but with large counts all
// members would have to use the same method.
Status HostOperation::alltoall() {
  const auto members = static_cast<std::size_t>(channel_.members);
  std::byte* to = output_;
  for (std::size_t member = 0; member < members; ++member) {
    const std::uint64_t count = operation_.recv_counts[member];
    DISTRUN_RETURN_IF_ERROR(in_pieces(count, [&](std::uint64_t at, int piece) {
      return check(call_.Irecv(to + at * unit_, piece, type(), static_cast<int>(member), kMessageTag, channel_.comm,
                               next_request()),
                   "MPI_Irecv");
    }));
    to += count * unit_;
  }
  const std::byte* from = input_;
  for (std::size_t member = 0; member < members; ++member) {
    const std::uint64_t count = operation_.counts[member];
    DISTRUN_RETURN_IF_ERROR(in_pieces(count, [&](std::uint64_t at, int piece) {
      return check(call_.Isend(from + at * unit_, piece, type(), static_cast<int>(member), kMessageTag, channel_.comm,
                               next_request()),
                   "MPI_Isend");
    }));
    from += count * unit_;
  }
  return {};
}

Status HostOperation::reducescatter() {
  auto op = channel_.process->op_of(plugin::dtype_of(operation_), plugin::reduce_of(operation_));
  if (!op.ok()) return op.status();
  if (count_ == 0) return {};
  const Layout& parts = layout(operation_.counts);
  return check(call_.Ireduce_scatter(input_, output_, parts.counts.data(), type(), *op, channel_.comm, next_request()),
               "MPI_Ireduce_scatter");
}

Status HostOperation::reducescatter_in_pieces() {
  auto op = channel_.process->op_of(plugin::dtype_of(operation_), plugin::reduce_of(operation_));
  if (!op.ok()) return op.status();
  const std::byte* part = input_;
  for (int member = 0; member < channel_.members; ++member) {
    const std::uint64_t count = operation_.counts[member];
    std::byte* out = member == channel_.index ? output_ : nullptr;
    DISTRUN_RETURN_IF_ERROR(in_pieces(count, [&](std::uint64_t at, int piece) {
      return check(call_.Ireduce(part + at * unit_, out == nullptr ? nullptr : out + at * unit_, piece, type(), *op,
                                 member, channel_.comm, next_request()),
                   "MPI_Ireduce");
    }));
    part += count * unit_;
  }
  return {};
}

Status HostOperation::barrier() { return check(call_.Ibarrier(channel_.comm, next_request()), "MPI_Ibarrier"); }

}  // namespace distrun::backend::mpi_plugin
