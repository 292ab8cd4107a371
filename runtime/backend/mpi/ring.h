// Moves parts of a tensor around the ring of members, in messages between neighbours. Used for large all-reduces: MPI's
// nonblocking all-reduce takes about twice as long as its blocking one, and a blocking call cannot be aborted. Also
// used for data that MPI cannot add itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/backend/mpi/library/channel.h"

namespace distrun::backend::mpi_plugin {

struct Range {
  std::uint64_t first = 0;  // elements
  std::uint64_t count = 0;
};

// The data of a ring.
struct RingWork {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // may equal input; if `scatters`, it has all blocks too
  std::size_t unit = 1;         // bytes per element
  Handle type = nullptr;        // MPI's type of an element
  std::vector<Range> blocks;    // one per member
  bool scatters = false;        // a member gets only the sum of its own block; otherwise all get all sums
  std::uint64_t piece_bytes = 0;
};

// Divides `count` elements evenly. The first members may have one element more.
std::vector<Range> even_blocks(std::uint64_t count, int members);

// The arithmetic of a ring, and its memory for received pieces: on the host, or on a device.
class RingSide {
 public:
  virtual ~RingSide() = default;
  virtual Result<std::byte*> memory(std::size_t slot) = 0;  // for one piece
  // Adds the received piece for `where` to this member's data, into the output. `last`: this completes the sum.
  virtual Status add(std::size_t slot, const Range& where, bool last) = 0;
  virtual Result<bool> added(std::size_t slot) = 0;  // whether the addition has ended
};

class Ring {
 public:
  // `side` must outlive the ring. All members start the same rings in the same order, and a channel has one active ring
  // at a time.
  Ring(const Channel& channel, RingWork work, RingSide& side);

  Status test();  // call it with a Turn held (library/process.h); the first call starts the ring
  [[nodiscard]] bool done() const { return finished_ == pieces_; }

 private:
  // Every member's block is cut into the same number of pieces. A slot carries one piece of each block at a time around
  // the ring. In members - 1 steps the received data is added to this member's data. Unless the ring scatters, in the
  // next members - 1 steps the sums are passed on.
  struct Slot {
    std::uint64_t piece = 0;
    int step = 0;
    std::array<Handle, 2> requests{};  // receive, send
    std::byte* received = nullptr;
    bool adding = false;
  };

  [[nodiscard]] Range range(std::uint64_t piece, int block) const;
  Status post(std::size_t number);
  Status test(std::size_t number, bool& moved);
  [[nodiscard]] bool adds(int step) const { return step < channel_.members - 1; }
  [[nodiscard]] int steps() const { return (work_.scatters ? 1 : 2) * (channel_.members - 1); }
  [[nodiscard]] int member(int offset) const;
  // The block that is `offset` positions before the one that this member sends first.
  [[nodiscard]] int block(int offset) const { return member(offset + (work_.scatters ? 1 : 0)); }

  Channel channel_;
  const RingWork work_;
  RingSide& side_;
  const std::uint64_t most_;  // elements per piece
  std::uint64_t pieces_ = 0;
  std::uint64_t finished_ = 0;
  bool started_ = false;
  std::array<Slot, kRingSlots> slots_;
};

}  // namespace distrun::backend::mpi_plugin
