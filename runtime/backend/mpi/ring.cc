#include "runtime/backend/mpi/ring.h"

#include <algorithm>
#include <utility>

namespace distrun::backend::mpi_plugin {

std::vector<Range> even_blocks(std::uint64_t count, int members) {
  const auto shares = static_cast<std::uint64_t>(members);
  std::vector<Range> blocks;
  std::uint64_t first = 0;
  for (std::uint64_t number = 0; number < shares; ++number) {
    blocks.push_back({.first = first, .count = count / shares + (number < count % shares ? 1 : 0)});
    first += blocks.back().count;
  }
  return blocks;
}

Ring::Ring(const Channel& channel, RingWork work, RingSide& side)
    : channel_(channel),
      work_(std::move(work)),
      side_(side),
      most_(std::min<std::uint64_t>(kLargestCount, work_.piece_bytes / work_.unit)) {
  if (channel_.members == 1) return;
  const std::uint64_t largest_block = std::ranges::max(work_.blocks, {}, &Range::count).count;
  pieces_ = (largest_block + most_ - 1) / most_;
}

Range Ring::range(std::uint64_t piece, int block) const {
  const Range& all = work_.blocks[static_cast<std::size_t>(block)];
  const std::uint64_t first = std::min(piece * most_, all.count);
  return {.first = all.first + first, .count = std::min(most_, all.count - first)};
}

// The member that is `offset` positions before this one on the ring.
int Ring::member(int offset) const {
  return ((channel_.index - offset) % channel_.members + channel_.members) % channel_.members;
}

// In step s a member sends the block that it received in step s - 1. In step 0 it sends its first block.
Status Ring::post(std::size_t number) {
  Slot& slot = slots_[number];
  const int sent_at = adds(slot.step) ? slot.step : slot.step - channel_.members;
  const Range out = range(slot.piece, block(sent_at));
  const Range in = range(slot.piece, block(sent_at + 1));
  const std::byte* from = (slot.step == 0 ? work_.input : work_.output) + out.first * work_.unit;
  std::byte* to = adds(slot.step) ? slot.received : work_.output + in.first * work_.unit;
  const int tag = kRingTag + static_cast<int>(number);
  slot.requests.fill(channel_.process->library().is.no_request);
  DISTRUN_RETURN_IF_ERROR(channel_.check(channel_.call().Irecv(to, static_cast<int>(in.count), work_.type, member(1),
                                                               tag, channel_.comm, &slot.requests[0]),
                                         "MPI_Irecv"));
  return channel_.check(channel_.call().Isend(from, static_cast<int>(out.count), work_.type, member(-1), tag,
                                              channel_.comm, &slot.requests[1]),
                        "MPI_Isend");
}

Status Ring::test() {
  if (!started_) {
    started_ = true;
    for (std::size_t number = 0; number < std::min<std::uint64_t>(kRingSlots, pieces_); ++number) {
      Slot& slot = slots_[number];
      slot.piece = number;
      auto memory = side_.memory(number);
      if (!memory.ok()) return memory.status();
      slot.received = *memory;
      DISTRUN_RETURN_IF_ERROR(post(number));
    }
  }
  for (bool moved = true; moved && !done();) {
    moved = false;
    for (std::size_t number = 0; number < kRingSlots; ++number) DISTRUN_RETURN_IF_ERROR(test(number, moved));
  }
  return {};
}

Status Ring::test(std::size_t number, bool& moved) {
  Slot& slot = slots_[number];
  if (slot.received == nullptr || slot.piece >= pieces_) return {};
  if (!slot.adding) {
    for (Handle& request : slot.requests) {
      int done = 0;
      DISTRUN_RETURN_IF_ERROR(channel_.check(channel_.call().Test(&request, &done, nullptr), "MPI_Test"));
      if (done == 0) return {};
    }
    moved = true;
    // The last member that adds to a block has the complete sum.
    const Range in = range(slot.piece, block(slot.step + 1));
    slot.adding = adds(slot.step) && in.count > 0;
    if (slot.adding) DISTRUN_RETURN_IF_ERROR(side_.add(number, in, !adds(slot.step + 1)));
  }
  if (slot.adding) {
    const auto added = side_.added(number);
    if (!added.ok()) return added.status();
    if (!*added) return {};
    moved = true;
    slot.adding = false;
  }
  if (++slot.step == steps()) {
    ++finished_;
    slot.piece += kRingSlots;
    slot.step = 0;
    if (slot.piece >= pieces_) return {};
  }
  return post(number);
}

}  // namespace distrun::backend::mpi_plugin
