// One operation in the window: how it is cut into chunks, and its progress.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/backend/backend.h"

namespace distrun::backend::shm {

// Iterates over the elements of all segments as one row. Chunks may span segments, so many small tensors cost as little
// as one large tensor, and no fusion buffer is needed.
class SegmentCursor {
 public:
  SegmentCursor() = default;
  explicit SegmentCursor(std::span<const Segment> segments) : segments_(segments) {}

  // Calls piece(segment, offset in elements, count) for the next `count` elements. At least `count` elements must be
  // left.
  template <class Piece>
  void advance(std::size_t count, Piece&& piece) {
    while (count > 0) {
      const Segment& segment = segments_[index_];
      const std::size_t here = std::min(count, segment.count - offset_);
      if (here > 0) piece(segment, offset_, here);
      count -= here;
      offset_ += here;
      if (offset_ == segment.count) {
        ++index_;
        offset_ = 0;
      }
    }
  }
  void skip(std::size_t count) {
    advance(count, [](const Segment&, std::size_t, std::size_t) {});
  }

 private:
  std::span<const Segment> segments_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
};

enum class Path {
  kNothing,    // no elements: no exchange
  kTiny,       // fits into one cache line per member
  kOneShot,    // every member reduces every chunk from all slots
  kTwoPhase,   // member p reduces part p of every chunk in its slot; all collect the parts
  kChain,      // a chunk passes all members, each adds its input; all read the result
  kBroadcast,  // all members read the root's slot
  kAllgather,  // all members read every slot
  kScatter,    // a slot has a piece of every member's part; each member reduces its own part from all slots
  kExchange,   // a slot has a piece of the block for each member; that member reads it
};

// Depends only on values that are the same on all members.
struct Plan {
  Path path = Path::kNothing;
  std::uint64_t chunks = 0;
  std::size_t chunk_elements = 0;
  // Allreduce, broadcast: elements of all segments. Allgather, reducescatter, alltoall: elements of the largest block
  // of any member. For the last two, every slot has a piece of up to chunk_elements for each member.
  std::size_t elements = 0;
};

// The slot size of a group, about `wanted` bytes. It is a multiple of the cache line, with at least one line per
// member, because some operations have a piece for every member in each slot.
std::size_t slot_bytes_of(std::size_t wanted, std::size_t members);

// `crowded`: the host has fewer cores than ranks, so members take turns anyway. A chain then costs each member two
// sweeps over memory instead of three. It uses one member's window only, which stays in the cache.
Plan plan_of(const Operation& operation, std::size_t members, std::size_t slot_bytes, bool crowded = false);

// The elements [begin, end) that member `part` reduces in a chunk of `elements`. Whole cache lines, except the last
// part.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t count() const { return end - begin; }
};
Range part_of(std::size_t elements, std::size_t unit, std::size_t part, std::size_t members);

struct PathSteps;

struct WindowTransfer {
  WindowTransfer(const Operation& operation_in, std::uint64_t token_in, const Plan& plan_in, std::uint64_t first_in);

  // For operations whose blocks differ in length: the elements in chunk `k` of a block of `count` elements.
  [[nodiscard]] Range piece_of(std::size_t count, std::uint64_t k) const {
    const std::size_t begin = std::min(static_cast<std::size_t>(k) * plan.chunk_elements, count);
    return {.begin = begin, .end = std::min(begin + plan.chunk_elements, count)};
  }

  [[nodiscard]] bool reduces() const { return plan.path == Path::kOneShot || plan.path == Path::kTwoPhase; }
  [[nodiscard]] bool in_slots() const { return plan.path != Path::kTiny; }
  // Whether results are written past the caches. A store through the cache first reads the line that it overwrites.
  // That line is in the cache already if it is the input too.
  [[nodiscard]] bool streams_to(const Segment& segment) const { return large_output && segment.in != segment.out; }
  // Elements of chunk `k` of this transfer.
  [[nodiscard]] std::size_t elements_of(std::uint64_t k) const {
    return std::min(plan.chunk_elements, plan.elements - static_cast<std::size_t>(k) * plan.chunk_elements);
  }

  Operation operation;
  std::uint64_t token;
  Plan plan;
  const PathSteps* steps;         // the steps of the plan's path
  std::uint64_t first;            // number of the first chunk; kTiny: number of the tiny operation
  bool large_output = false;      // the output is mostly evicted from the caches before it is read
  int stores = -1;                // index of the StoreChoice that decides; -1: always through the cache
  std::uint64_t first_tried = 0;  // number of the first chunk, as that StoreChoice counts
  std::size_t unit;               // bytes per element
  // Chunks that have passed each stage. (kTiny has one chunk. Only kTwoPhase has a reduce stage.)
  std::uint64_t packed = 0;
  std::uint64_t reduced;
  std::uint64_t unpacked = 0;
  SegmentCursor pack_at;
  SegmentCursor reduce_at;
  SegmentCursor unpack_at;
  // The first element of each member's block. Allgather: in the output. Reducescatter: in the input.
  std::vector<std::size_t> offsets;
};

}  // namespace distrun::backend::shm
