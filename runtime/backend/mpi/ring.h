// A large all-reduce around the ring of members, in messages from neighbour to neighbour: MPI's own nonblocking
// all-reduce takes about twice as long as its blocking one, which nobody could abort.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "runtime/backend/mpi/channel.h"
#include "runtime/backend/plugin/guest.h"

namespace distrun::backend::mpi_plugin {

inline constexpr std::uint64_t kRingBytes = 64 << 10;  // less than this is MPI's

class Ring {
 public:
  // `operation` outlives the ring. All members start alike, and one ring of a channel after the other.
  Ring(const Channel& channel, const distrun_backend_operation& operation);
  static bool serves(const Channel& channel, const distrun_backend_operation& operation);

  Status test();  // on a thread that has its turn; starts what has not been started
  [[nodiscard]] bool done() const { return finished_ == pieces_; }

 private:
  // Every member's block is cut into as many pieces. A slot carries one piece of each block at a time around the ring:
  // members - 1 steps in which what comes is added to what is here, and as many in which sums are passed on.
  static constexpr std::size_t kSlots = std::tuple_size_v<RingMemory>;
  struct Slot {
    std::uint64_t piece = 0;
    int step = 0;
    std::array<Handle, 2> requests{};  // receive, send
    std::byte* received = nullptr;
  };
  struct Range {
    std::uint64_t first = 0;  // elements
    std::uint64_t count = 0;
  };

  [[nodiscard]] Range range(std::uint64_t piece, int block) const;
  Status post(std::size_t number);
  Status test(std::size_t number, bool& moved);
  void add(Slot& slot);
  [[nodiscard]] bool adds(int step) const { return step < channel_.members - 1; }
  [[nodiscard]] int block(int offset) const;

  Channel channel_;
  const distrun_backend_operation& operation_;
  DType dtype_;
  std::uint64_t unit_;
  const std::byte* input_;
  std::byte* output_;
  std::uint64_t most_;  // elements of a piece
  std::uint64_t pieces_;
  std::uint64_t finished_ = 0;
  bool started_ = false;
  std::array<Slot, kSlots> slots_;
};

}  // namespace distrun::backend::mpi_plugin
