// Parts of a tensor around the ring of members, in messages from neighbour to neighbour: for large all-reduces, since
// MPI's own nonblocking one takes about twice as long as its blocking one, which nobody could abort; and for what MPI
// cannot add itself.
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

// What goes around.
struct RingWork {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // may be the input. Where it scatters: of all blocks too
  std::size_t unit = 1;         // bytes of an element
  Handle type = nullptr;        // of an element
  std::vector<Range> blocks;    // one for each member
  bool scatters = false;        // a member gets its own block's sum alone; otherwise all get all
  std::uint64_t piece_bytes = 0;
};

// As many elements for each member, but for one more for the first ones.
std::vector<Range> even_blocks(std::uint64_t count, int members);

// The arithmetic, and memory for what comes: of the host, or of a device.
class RingSide {
 public:
  virtual ~RingSide() = default;
  virtual Result<std::byte*> memory(std::size_t slot) = 0;  // a piece's
  // What has come for `where` is added to what is here, into the output. `last`: the sum is whole then.
  virtual Status add(std::size_t slot, const Range& where, bool last) = 0;
  virtual Result<bool> added(std::size_t slot) = 0;  // whether that is done
};

class Ring {
 public:
  // `side` outlives the ring. All members start alike, and one ring of a channel after the other.
  Ring(const Channel& channel, RingWork work, RingSide& side);

  Status test();  // on a thread that has its turn; starts what has not been started
  [[nodiscard]] bool done() const { return finished_ == pieces_; }

 private:
  // Every member's block is cut into as many pieces. A slot carries one piece of each block at a time around the ring:
  // members - 1 steps in which what comes is added to what is here, and, unless it scatters, as many in which sums are
  // passed on.
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
  // The block that is so far behind the one that this member sends first.
  [[nodiscard]] int block(int offset) const { return member(offset + (work_.scatters ? 1 : 0)); }

  Channel channel_;
  const RingWork work_;
  RingSide& side_;
  const std::uint64_t most_;  // elements of a piece
  std::uint64_t pieces_ = 0;
  std::uint64_t finished_ = 0;
  bool started_ = false;
  std::array<Slot, kRingSlots> slots_;
};

}  // namespace distrun::backend::mpi_plugin
