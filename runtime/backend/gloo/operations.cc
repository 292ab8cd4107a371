#include "runtime/backend/gloo/operations.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "runtime/base/types.h"

namespace distrun::backend::gloo_plugin {
namespace {

using ContextPtr = std::shared_ptr<::gloo::Context>;
using Bytes = std::uint8_t;  // Gloo moves bytes; only the reduction knows their type

Bytes* bytes_of(const void* data) { return const_cast<Bytes*>(static_cast<const Bytes*>(data)); }

void copy(const void* from, void* to, std::size_t bytes) {
  if (from != to && bytes > 0) std::memcpy(to, from, bytes);
}

// The sizes in bytes of `counts` elements each.
std::vector<std::int64_t> sizes_of(const std::uint64_t* counts, int members, std::size_t unit) {
  std::vector<std::int64_t> sizes;
  for (int member = 0; member < members; ++member) sizes.push_back(static_cast<std::int64_t>(counts[member] * unit));
  return sizes;
}

void exchange(const ContextPtr& context, const void* input, const std::vector<std::int64_t>& sent, void* output,
              const std::vector<std::int64_t>& received) {
  ::gloo::AlltoallvOptions options(context);
  options.setInput(bytes_of(input), sent);
  options.setOutput(bytes_of(output), received);
  ::gloo::alltoallv(options);
}

// Sends each member its part of `input`, of `sent` bytes. Reduces the `count` elements that come from each member, in
// member order.
void reduce_what_comes(const ContextPtr& context, const distrun_backend_operation& operation, const void* input,
                       const std::vector<std::int64_t>& sent, std::size_t count) {
  const std::size_t bytes = count * size_of(plugin::dtype_of(operation));
  const auto members = static_cast<std::size_t>(context->size);
  std::vector<const std::byte*> parts = {static_cast<const std::byte*>(input)};
  std::unique_ptr<std::byte[]> received;
  if (members > 1) {
    received = std::make_unique_for_overwrite<std::byte[]>(members * bytes);
    exchange(context, input, sent, received.get(),
             std::vector<std::int64_t>(members, static_cast<std::int64_t>(bytes)));
    parts.clear();
    for (std::size_t member = 0; member < members; ++member) parts.push_back(received.get() + member * bytes);
  }
  if (count > 0) plugin::reduce_parts(operation, parts, static_cast<std::byte*>(operation.segments->output), count);
}

// Gloo splits a tensor between elements, so Element must have the size of the tensor's elements.
template <class Element>
void allreduce_as(const ContextPtr& context, const distrun_backend_operation& operation) {
  const distrun_backend_segment& segment = *operation.segments;
  ::gloo::AllreduceOptions options(context);
  const bool ring = segment.count * sizeof(Element) > kRingBytes;
  options.setAlgorithm(ring ? ::gloo::AllreduceOptions::Algorithm::RING : ::gloo::AllreduceOptions::Algorithm::BCUBE);
  if (segment.input != segment.output) {
    options.setInput(static_cast<Element*>(const_cast<void*>(segment.input)), segment.count);
  }
  options.setOutput(static_cast<Element*>(segment.output), segment.count);
  const kernels::Reduction how = {
      .dtype = plugin::dtype_of(operation), .op = plugin::reduce_of(operation), .finish = {}};
  options.setReduceFunction([how](void* out, const void* a, const void* b, std::size_t count) {
    const std::array<const std::byte*, 2> sources = {static_cast<const std::byte*>(a),
                                                     static_cast<const std::byte*>(b)};
    kernels::reduce(how, sources, static_cast<std::byte*>(out), count);
  });
  ::gloo::allreduce(options);
}

void allreduce(const ContextPtr& context, const distrun_backend_operation& operation) {
  const distrun_backend_segment& segment = *operation.segments;
  const std::size_t unit = size_of(plugin::dtype_of(operation));
  const std::size_t bytes = segment.count * unit;
  if (bytes == 0) return;
  if (context->size == 1) {
    const auto* const own = static_cast<const std::byte*>(segment.input);
    return plugin::reduce_parts(operation, {&own, 1}, static_cast<std::byte*>(segment.output), segment.count);
  }
  if (unit == 1) {
    allreduce_as<std::uint8_t>(context, operation);
  } else if (unit == 2) {
    allreduce_as<std::uint16_t>(context, operation);
  } else if (unit == 4) {
    allreduce_as<std::uint32_t>(context, operation);
  } else if (unit == 8) {
    allreduce_as<std::uint64_t>(context, operation);
  } else {
    allreduce_as<std::array<std::uint64_t, 2>>(context, operation);
  }
  plugin::finish_average(operation, static_cast<std::size_t>(context->size), static_cast<std::byte*>(segment.output),
                         segment.count);
}

void allgather(const ContextPtr& context, const distrun_backend_operation& operation) {
  const distrun_backend_segment& segment = *operation.segments;
  const std::size_t unit = size_of(plugin::dtype_of(operation));
  const auto self = static_cast<std::size_t>(context->rank);
  std::vector<std::size_t> sizes(operation.counts, operation.counts + context->size);
  for (std::size_t& size : sizes) size *= unit;
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  if (total == 0) return;
  const std::size_t mine = std::accumulate(sizes.begin(), sizes.begin() + context->rank, std::size_t{0});
  copy(segment.input, bytes_of(segment.output) + mine, sizes[self]);
  if (context->size == 1) return;
  ::gloo::AllgathervOptions options(context);
  options.setOutput(bytes_of(segment.output), sizes);
  ::gloo::allgatherv(options);
}

void broadcast(const ContextPtr& context, const distrun_backend_operation& operation) {
  const distrun_backend_segment& segment = *operation.segments;
  const std::size_t bytes = segment.count * size_of(plugin::dtype_of(operation));
  if (bytes == 0) return;
  if (context->rank == operation.root) copy(segment.input, segment.output, bytes);
  if (context->size == 1) return;
  ::gloo::BroadcastOptions options(context);
  options.setRoot(operation.root);
  options.setOutput(bytes_of(segment.output), bytes);
  ::gloo::broadcast(options);
}

void alltoall(const ContextPtr& context, const distrun_backend_operation& operation) {
  const distrun_backend_segment& segment = *operation.segments;
  const std::size_t unit = size_of(plugin::dtype_of(operation));
  if (context->size == 1) return copy(segment.input, segment.output, segment.count * unit);
  exchange(context, segment.input, sizes_of(operation.counts, context->size, unit), segment.output,
           sizes_of(operation.recv_counts, context->size, unit));
}

// Gloo has no reduce-scatter for any type and uneven parts. So every member sends each other one its part.
void reducescatter(const ContextPtr& context, const distrun_backend_operation& operation) {
  const std::size_t unit = size_of(plugin::dtype_of(operation));
  reduce_what_comes(context, operation, operation.segments->input, sizes_of(operation.counts, context->size, unit),
                    operation.counts[context->rank]);
}

void barrier(const ContextPtr& context) {
  if (context->size == 1) return;
  ::gloo::BarrierOptions options(context);
  ::gloo::barrier(options);
}

}  // namespace

void run(const ContextPtr& context, const distrun_backend_operation& operation) {
  if (operation.num_segments == 0 && operation.kind != DISTRUN_BACKEND_BARRIER) return;
  switch (operation.kind) {
    case DISTRUN_BACKEND_ALLREDUCE:
      return allreduce(context, operation);
    case DISTRUN_BACKEND_ALLGATHER:
      return allgather(context, operation);
    case DISTRUN_BACKEND_BROADCAST:
      return broadcast(context, operation);
    case DISTRUN_BACKEND_BARRIER:
      return barrier(context);
    case DISTRUN_BACKEND_ALLTOALL:
      return alltoall(context, operation);
    case DISTRUN_BACKEND_REDUCESCATTER:
      return reducescatter(context, operation);
    default:
      throw std::invalid_argument("an operation that this plug-in did not offer");
  }
}

}  // namespace distrun::backend::gloo_plugin
