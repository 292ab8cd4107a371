#include "runtime/backend/shm/transfer.h"

#include "runtime/backend/shm/paths.h"
#include "runtime/backend/shm/window.h"
#include "runtime/base/types.h"

namespace distrun::backend::shm {
namespace {

// Up to this size, reading all slots is faster than a second exchange of flags.
constexpr std::size_t kOneShotBytes = 32 << 10;
constexpr std::size_t kCacheLine = 64;
std::size_t rounded_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

std::size_t total_elements(const Operation& operation) {
  std::size_t total = 0;
  if (!operation.counts.empty()) {
    for (const std::size_t count : operation.counts) total = std::max(total, count);
  } else {
    for (const Segment& segment : operation.segments) total += segment.count;
  }
  return total;
}

// A chain stores partial results in the tensor's dtype. So it gives the same bits as one sweep only if sums are held in
// that dtype. It adds the inputs without a prescale.
bool may_chain(const Operation& operation) {
  const DTypeTraits& dtype = traits_of(operation.dtype);
  const bool held_wider = dtype.family == DTypeFamily::kFloat && dtype.bytes == 2;
  return operation.prescale == 1.0 && !held_wider;
}

Path path_of(const Operation& operation, std::size_t bytes, std::size_t members, bool crowded) {
  if (operation.kind == OpKind::kBarrier) return Path::kTiny;
  if (bytes == 0) return Path::kNothing;
  if (operation.kind == OpKind::kBroadcast) return Path::kBroadcast;
  if (operation.kind == OpKind::kReducescatter) return Path::kScatter;
  if (operation.kind == OpKind::kAlltoall) return Path::kExchange;
  if (bytes <= TinyLine::kPayload) return Path::kTiny;
  if (operation.kind == OpKind::kAllgather) return Path::kAllgather;
  if (members <= 2 || bytes <= kOneShotBytes) return Path::kOneShot;
  return crowded && may_chain(operation) ? Path::kChain : Path::kTwoPhase;
}

}  // namespace

std::size_t slot_bytes_of(std::size_t wanted, std::size_t members) {
  return std::max(wanted / kCacheLine, members) * kCacheLine;
}

Plan plan_of(const Operation& operation, std::size_t members, std::size_t slot_bytes, bool crowded) {
  const std::size_t unit = size_of(operation.dtype);
  Plan plan = {.elements = total_elements(operation)};
  const std::size_t bytes = plan.elements * unit;
  plan.path = path_of(operation, bytes, members, crowded);
  if (plan.path == Path::kNothing) return plan;
  if (plan.path == Path::kTiny) {
    plan.chunks = 1;
    return plan;
  }
  const bool shared = plan.path == Path::kScatter || plan.path == Path::kExchange;
  plan.chunk_elements = shared ? slot_bytes / members / kCacheLine * kCacheLine / unit : slot_bytes / unit;
  plan.chunks = (plan.elements + plan.chunk_elements - 1) / plan.chunk_elements;
  return plan;
}

Range part_of(std::size_t elements, std::size_t unit, std::size_t part, std::size_t members) {
  const std::size_t each = rounded_up((elements + members - 1) / members, kCacheLine / unit);
  const std::size_t begin = std::min(part * each, elements);
  return {.begin = begin, .end = std::min(begin + each, elements)};
}

WindowTransfer::WindowTransfer(const Operation& operation_in, std::uint64_t token_in, const Plan& plan_in,
                               std::uint64_t first_in)
    : operation(operation_in),
      token(token_in),
      plan(plan_in),
      steps(&steps_of(plan_in.path)),
      first(first_in),
      unit(size_of(operation_in.dtype)),
      reduced(plan_in.path == Path::kTwoPhase ? 0 : plan_in.chunks),
      pack_at(operation_in.segments),
      reduce_at(operation_in.segments),
      unpack_at(operation_in.segments) {
  if (operation.kind != OpKind::kAllgather && operation.kind != OpKind::kReducescatter) return;
  std::size_t at = 0;
  for (const std::size_t count : operation.counts) {
    offsets.push_back(at);
    at += count;
  }
}

}  // namespace distrun::backend::shm
