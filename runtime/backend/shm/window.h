// The shared memory of one group: per member three counters, two lines for tiny payloads and a cyclic window of slots.
// Everything of a member is written by that member only, but for the first member's slots in a chain, which go through
// all members in turn.
//
// Chunks are numbered from 0 over the whole life of the group, alike on all members, since all run the same operations
// in the same order. Counters only grow, so a value never comes back with another meaning (no ABA). Chunk g lies in
// slot g % kSlots of each member that contributes to it; its slot may be written once all members are done with chunk
// g - kSlots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/net/host/host_link.h"

namespace distrun::backend::shm {

inline constexpr std::uint64_t kSlots = 4;

// Payload and number in one cache line: one transfer between cores brings both.
struct alignas(64) TinyLine {
  static constexpr std::size_t kPayload = 56;
  std::byte payload[kPayload];
  std::uint64_t number;  // of the tiny operation whose payload this is, from 1; atomic access only
};

// A pair of cache lines, since the hardware fetches them in pairs. Atomic access only.
struct alignas(128) Counter {
  std::uint64_t value;
};

struct MemberLines {
  Counter ready;    // chunks whose contribution lies in the slot
  Counter reduced;  // two-phase operations: chunks of which the own part is reduced, in the own slot
  Counter done;     // chunks that this member reads no more
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

// One of the counters over all members, as one member sees it. Others' values are cached: a line is imported from its
// writer's core only when the cached value does not do.
class Tally {
 public:
  using Which = Counter MemberLines::*;
  Tally(const Window& window, Which which, std::size_t self);

  [[nodiscard]] bool reached(std::size_t member, std::uint64_t value);
  [[nodiscard]] bool all_reached(std::uint64_t value);
  // Raises this member's counter. Others wait for the slowest member, so only a store that may have raised the minimum
  // rings: in the total order of the seq_cst operations the last store that passes a value is followed by loads that
  // see all others beyond it. Without this, every store would wake every sleeper once per member.
  void publish(std::uint64_t value, const Bells& bells);
  // Where one member alone waits for this one.
  void publish_to(std::uint64_t value, const Bells& bells, int rank);
  // Where members wait for this one alone.
  void publish_and_ring(std::uint64_t value, const Bells& bells);

 private:
  void store(std::uint64_t value);
  [[nodiscard]] bool others_reached(std::uint64_t value);

  std::vector<std::uint64_t*> counters_;
  std::vector<std::uint64_t> seen_;
  std::size_t self_;
};

}  // namespace distrun::backend::shm
