// Tensors between devices: moves the data of one group (the members of one process set).
// Called by the holder of the progress token only, except abort(). Nothing blocks. Every member starts the same
// operations in the same order (the order of the decision log); operations of one group may be in flight together.
// A backend that has failed keeps failing with the first error.
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

// One tensor's bytes. `in` may equal `out` (in place; not in alltoall and reducescatter); otherwise they do not
// overlap.
struct Segment {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements
};

// The caller keeps `segments`, `counts` and the memory alive until the token is reported complete.
struct Operation {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kF32;
  Device device;
  // allreduce: any number of segments, reduced as if concatenated; average divides by the group's size.
  // broadcast: `in` is read at the root, `out` written at the others (and at the root when in != out).
  // allgather: exactly one segment; `in` is this member's block, `out` receives all blocks in member order.
  // alltoall: exactly one segment; `in` holds a block for each member and `out` receives one from each, in member
  // order. reducescatter: exactly one segment; `in` is every member's part, in member order, `out` receives this
  // member's own.
  std::span<const Segment> segments;
  ReduceOp reduce = ReduceOp::kSum;
  double prescale = 1.0;   // applied to each input before the reduction
  double postscale = 1.0;  // applied to the result (after the division of an average)
  int root = 0;            // broadcast: member index
  // Elements. allgather: of each member's block. reducescatter: of each member's part. alltoall: at i * members + j
  // what member i sends to member j. The same on all members.
  std::span<const std::size_t> counts;
  // On a device: places on its streams, of Factory::mark(); the tensors are ready when it has passed them all.
  std::span<void* const> marks;
  bool alone = false;  // nothing else of this rank's is in flight: start() may keep the thread for a millisecond
};

// Memory on a device or the host; frees itself.
using Memory = std::shared_ptr<std::byte>;

struct Completed {
  std::uint64_t token = 0;
  Status status;
};

// What moves an operation on, and so how its end is waited for.
enum class MovedBy : std::uint8_t {
  kDescriptors,  // progress(), after the wait set has woken
  kMemory,       // progress(), which reads memory: the engine may spin on it
  kOwnThread,    // a thread of the backend's own, which may need the core of whoever looks for its end
  kCalls,        // progress() alone: nothing wakes who waits for it, so nobody may sleep
};

constexpr std::uint32_t bits_of(std::initializer_list<OpKind> kinds) {
  std::uint32_t bits = 0;
  for (const OpKind kind : kinds) bits |= 1U << static_cast<unsigned>(kind);
  return bits;
}

// `ops`, `dtypes` and `devices` are bit masks over OpKind, DType and DeviceType, as a backend offers them.
struct Capabilities {
  std::uint32_t ops = 0;
  std::uint32_t dtypes = 0;
  std::uint32_t devices = 0;
  bool scatter_gather = false;  // takes many segments and scales itself; otherwise the executor packs and scales
  bool revocable = false;       // writes no output before every member has contributed
  bool exclusive = false;       // until it ends, nothing starts that is exclusive too or on a device; there it is alone
  MovedBy moved_by = MovedBy::kDescriptors;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual const Capabilities& capabilities() const = 0;
  // Whether it has such an operation: the same on all members, whose capabilities are what all of them offered.
  // kUnsupported.
  [[nodiscard]] virtual Status can(OpKind kind, DType dtype) const;
  // `token` comes back in completed(). An error or exception here means that the operation was not started.
  virtual Status start(const Operation& operation, std::uint64_t token) = 0;
  // Moves what can be moved; true if anything did. Called again and again while something of the group is in flight,
  // else after each poll of the wait set and after abort().
  virtual bool progress() = 0;
  // Appends what has completed since the last call, in any order.
  virtual void completed(std::vector<Completed>& out) = 0;
  // From any thread: every operation in flight, and every later one, fails with `why` at the next progress().
  // After completed() has reported them nothing of this backend touches their memory any more.
  virtual void abort(const Status& why) = 0;
  // A peer seen to be gone, if any. What needs that peer stands still; it completes with the cause that abort() gives
  // once the engine knows it (or before, with the backend's own error, where a library decides so).
  [[nodiscard]] virtual std::optional<EndedLink> lost_peer() const = 0;
  // Memory of `device` for operations that are started later: outputs whose size only the engine knows, and what stands
  // in for a tensor. `element`, repeated, is its content; empty: any. kOutOfMemory.
  virtual Result<Memory> allocate(Device device, std::size_t bytes, std::span<const std::byte> element);
  // Memory of the host that operations on `device` may have as input or output. Slow to make. kOutOfMemory.
  virtual Result<Memory> stage(Device device, std::size_t bytes);
};

// out[i] = in[i] * factor, rounded to the dtype: for who scales on behalf of a backend without scatter_gather, with the
// same bits as the backends that do it themselves. `in` may equal `out`.
void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count);

// The same for the end of a reduction: out[i] = in[i], which after an average is divided by `members`, * postscale,
// with one rounding for both.
void finish(DType dtype, ReduceOp reduce, double postscale, std::size_t members, const std::byte* in, std::byte* out,
            std::size_t count);

// Memory with any content, for data on its way. kOutOfMemory, whose text says that it was for `what`.
Result<std::unique_ptr<std::byte[]>> make_buffer(std::size_t bytes, std::string_view what);

}  // namespace distrun::backend
