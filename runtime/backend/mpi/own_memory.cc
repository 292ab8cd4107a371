#include "runtime/backend/mpi/own_memory.h"

#include <cstring>
#include <numeric>

#include "runtime/backend/backend.h"

namespace distrun::backend::mpi_plugin {
namespace {

constexpr std::size_t kAlignment = 64;

// The number of elements in the output.
std::uint64_t received(const Channel& channel, const distrun_backend_operation& operation) {
  const auto of_all = [&](const std::uint64_t* counts) {
    return std::accumulate(counts, counts + channel.members, std::uint64_t{0});
  };
  switch (operation.kind) {
    case DISTRUN_BACKEND_ALLGATHER:
      return of_all(operation.counts);
    case DISTRUN_BACKEND_ALLTOALL:
      return of_all(operation.recv_counts);
    case DISTRUN_BACKEND_REDUCESCATTER:
      return operation.counts[channel.index];
    default:
      return operation.segments->count;
  }
}

}  // namespace

Status OwnMemory::take(const Channel& channel, distrun_backend_operation& operation) {
  const std::size_t unit = size_of(plugin::dtype_of(operation));
  segment_ = *operation.segments;
  const bool in_place = segment_.input == segment_.output;
  const bool casts = operation.kind == DISTRUN_BACKEND_BROADCAST;
  const bool is_root = casts && channel.index == operation.root;
  result_ = is_root && in_place ? nullptr : segment_.output;
  result_bytes_ = received(channel, operation) * unit;
  const std::size_t input_bytes = segment_.count * unit;
  const std::size_t output_at = in_place ? 0 : (input_bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto memory = make_buffer(output_at + result_bytes_, "the copy of an operation");
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  if (input_bytes > 0 && (is_root || !casts)) std::memcpy(memory_.get(), segment_.input, input_bytes);
  segment_.input = memory_.get();
  segment_.output = memory_.get() + output_at;
  operation.segments = &segment_;
  return {};
}

void OwnMemory::give_back() {
  if (result_ != nullptr && result_bytes_ > 0) std::memcpy(result_, segment_.output, result_bytes_);
}

}  // namespace distrun::backend::mpi_plugin
