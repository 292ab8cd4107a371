// A backend moves tensor data between the members of one group (the members of one process set).
// Only the holder of the progress token calls it, except abort(). No method blocks. All members start the same
// operations in the same order (the order of the decision log). Several operations of one group may be in flight
// together.
// After a failure, a backend keeps failing with the first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ended_link.h"
#include "runtime/base/status.h"
#include "runtime/base/types.h"

namespace distrun::backend {

// The memory of one tensor. `in` may equal `out` (in-place), except in alltoall and reducescatter. Otherwise they do
// not overlap.
struct Segment {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements
};

// The caller keeps `segments`, `counts` and the memory alive until the token is reported as complete.
struct Operation {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kF32;
  Device device;
  // allreduce: any number of segments, reduced as if concatenated. An average divides by the group's size.
  // broadcast: reads `in` at the root. Writes `out` at the other members, and at the root if in != out.
  // allgather: exactly one segment. `in` is this member's block; `out` receives all blocks in member order.
  // alltoall: exactly one segment. `in` holds one block for each member, `out` receives one block from each, both in
  // member order.
  // reducescatter: exactly one segment. `in` holds every member's part in member order, `out` receives this member's
  // part.
  std::span<const Segment> segments;
  ReduceOp reduce = ReduceOp::kSum;
  double prescale = 1.0;   // multiplies each input before the reduction
  double postscale = 1.0;  // multiplies the result, after the division of an average
  int root = 0;            // broadcast: index of the root in the group
  // Elements; the same on all members. allgather: of each member's block. reducescatter: of each member's part.
  // alltoall: element i * members + j is the count that member i sends to member j.
  std::span<const std::size_t> counts;
  // For tensors on a device: marks from Factory::mark(). The tensors are ready when the device has passed all of them.
  std::span<void* const> marks;
  // This rank has no other operation in flight, so start() may occupy the thread for about a millisecond.
  bool alone = false;
};

// Memory on a device or the host. The last owner frees it.
using Memory = std::shared_ptr<std::byte>;

struct Completed {
  std::uint64_t token = 0;
  Status status;
};

// The mechanism that makes an operation progress. It determines how the engine waits for the end.
enum class MovedBy : std::uint8_t {
  kDescriptors,  // progress(), after the wait set has woken the engine
  kMemory,       // progress(), which reads shared memory: the engine may spin on it
  kOwnThread,    // a thread of the backend, which may need the core of the thread that waits
  kCalls,        // progress() only: nothing wakes a waiting thread, so no thread may sleep
};

constexpr std::uint32_t bits_of(std::initializer_list<OpKind> kinds) {
  std::uint32_t bits = 0;
  for (const OpKind kind : kinds) bits |= 1U << static_cast<unsigned>(kind);
  return bits;
}

// A backend's offer. `ops`, `dtypes` and `devices` are bit masks over OpKind, DType and DeviceType.
struct Capabilities {
  std::uint32_t ops = 0;
  std::uint32_t dtypes = 0;
  std::uint32_t devices = 0;
  bool scatter_gather = false;  // takes many segments and scales itself; otherwise the executor does both
  bool revocable = false;       // writes no output before every member has contributed
  // While an operation of an exclusive backend runs, the engine starts no other operation that is exclusive or on a
  // device. An exclusive operation on a device runs alone.
  bool exclusive = false;
  MovedBy moved_by = MovedBy::kDescriptors;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual const Capabilities& capabilities() const = 0;
  // Whether the backend has this operation for this dtype. All members get the same answer, because they use the
  // capabilities that all of them offered. Error: kUnsupported.
  [[nodiscard]] virtual Status can(OpKind kind, DType dtype) const;
  // completed() reports `token` when the operation has ended. If this returns an error or throws, the operation was not
  // started.
  virtual Status start(const Operation& operation, std::uint64_t token) = 0;
  // Makes progress without blocking; returns true if anything moved. The engine calls it repeatedly while an operation
  // of the group is in flight. Otherwise it calls it after each poll of the wait set and after abort().
  virtual bool progress() = 0;
  // Appends the operations that have completed since the last call, in any order.
  virtual void completed(std::vector<Completed>& out) = 0;
  // Thread-safe. At the next progress(), every operation in flight fails with `why`, and so does every later one. After
  // completed() has reported the operations, the backend no longer touches their memory.
  virtual void abort(const Status& why) = 0;
  // A peer that was found to be gone, if any. Operations that need this peer stop making progress. The engine finds the
  // cause and calls abort(), and they complete with it. A library may complete them earlier with its own error.
  [[nodiscard]] virtual std::optional<EndedLink> lost_peer() const = 0;
  // Allocates memory of `device` for operations that start later. Uses: outputs whose size only the engine knows, and
  // substitutes for tensors that this rank does not have. `element` is repeated as the content; if it is empty, any
  // content. Error: kOutOfMemory.
  virtual Result<Memory> allocate(Device device, std::size_t bytes, std::span<const std::byte> element);
  // Allocates host memory that operations on `device` may use as input or output. Slow. Error: kOutOfMemory.
  virtual Result<Memory> stage(Device device, std::size_t bytes);
};

// out[i] = in[i] * factor, rounded to the dtype. For callers that scale for a backend without scatter_gather. The
// result has the same bits as that of a backend that scales itself. `in` may equal `out`.
void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count);

// The last step of a reduction: out[i] = in[i] * postscale. For an average, in[i] is also divided by `members`. Both
// together round once.
void finish(DType dtype, ReduceOp reduce, double postscale, std::size_t members, const std::byte* in, std::byte* out,
            std::size_t count);

// Allocates a buffer with any content, for data in transit. Error: kOutOfMemory; its text names `what`.
Result<std::unique_ptr<std::byte[]>> make_buffer(std::size_t bytes, std::string_view what);

}  // namespace distrun::backend
