// The shared memory of one group. Each member has three counters, two lines for tiny payloads and a cyclic window of
// slots. Only the owner writes a member's memory. The exception is a chain: all members in turn write the first
// member's slots.
//
// Chunks are numbered from 0 over the lifetime of the group. The numbers are the same on all members, because all run
// the same operations in the same order. Counters only grow, so a value never gets another meaning (no ABA). Chunk g is
// in slot g % kSlots of each member that contributes to it. A member may write the slot when all members are done with
// chunk g - kSlots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/net/host/host_link.h"

namespace distrun::backend::shm {

inline constexpr std::uint64_t kSlots = 4;

// Payload and number share one cache line, so that one transfer between cores brings both.
struct alignas(64) TinyLine {
  static constexpr std::size_t kPayload = 56;
  std::byte payload[kPayload];
  std::uint64_t number;  // number of the tiny operation with this payload, from 1; atomic access only
};

// A pair of cache lines, because the hardware fetches them in pairs. Atomic access only.
struct alignas(128) Counter {
  std::uint64_t value;
};

struct MemberLines {
  Counter ready;    // chunks whose contribution is in the slot
  Counter reduced;  // two-phase operations: chunks whose own part is reduced and in the own slot
  Counter done;     // chunks that this member no longer reads
  TinyLine tiny[2];
};

class Window {
 public:
  // `slot_bytes` is a multiple of 64.
  static std::size_t bytes_for(std::size_t members, std::size_t slot_bytes);
  Window(std::span<std::byte> memory, std::size_t members, std::size_t slot_bytes);

  [[nodiscard]] std::size_t members() const { return members_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] MemberLines& lines(std::size_t member) const { return lines_[member]; }
  [[nodiscard]] TinyLine& tiny(std::size_t member, std::uint64_t number) const {
    return lines_[member].tiny[number & 1];
  }
  [[nodiscard]] std::byte* slot(std::size_t member, std::uint64_t chunk) const {
    return slots_ + (member * kSlots + chunk % kSlots) * slot_bytes_;
  }

 private:
  MemberLines* lines_;
  std::byte* slots_;
  std::size_t members_;
  std::size_t slot_bytes_;
};

// The doorbells of the other members.
class Bells {
 public:
  Bells(net::HostLink* link, std::vector<int> peers) : link_(link), peers_(std::move(peers)) {}
  void ring() const { link_->ring_all(peers_); }
  void ring_one(int rank) const { link_->ring(rank); }

 private:
  net::HostLink* link_;
  std::vector<int> peers_;  // world ranks
};

// One counter of all members, as one member sees it. The values of the others are cached. Their cache line is fetched
// from the writer's core only if the cached value is too low.
class CounterView {
 public:
  using Which = Counter MemberLines::*;
  CounterView(const Window& window, Which which, std::size_t self);

  [[nodiscard]] bool reached(std::size_t member, std::uint64_t value);
  [[nodiscard]] bool all_reached(std::uint64_t value);
  // Raises this member's counter. Others wait for the slowest member, so this rings only if the store may have raised
  // the minimum. That is enough: in the total order of the seq_cst operations, the last store that passes a value is
  // followed by loads that see all other counters beyond it. Without this check, every store would wake every sleeping
  // member.
  void publish(std::uint64_t value, const Bells& bells);
  // For a value for which only the member `rank` waits.
  void publish_to(std::uint64_t value, const Bells& bells, int rank);
  // For a value for which the others wait for this member only.
  void publish_and_ring(std::uint64_t value, const Bells& bells);

 private:
  void store(std::uint64_t value);
  [[nodiscard]] bool others_reached(std::uint64_t value);

  std::vector<std::uint64_t*> counters_;
  std::vector<std::uint64_t> seen_;
  std::size_t self_;
};

}  // namespace distrun::backend::shm
