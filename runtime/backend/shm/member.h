// One member's view of the window of its group: its own slots and counters, and what it has read of the others'
// counters. Each path (paths.h) moves chunks through it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/backend/shm/window.h"

namespace distrun::backend::shm {

class WindowMember {
 public:
  // `members` are world ranks; this member is at `self`. The link outlives this object.
  WindowMember(net::HostLink* link, const std::vector<int>& members, std::size_t self, const Window& window);

  [[nodiscard]] std::size_t size() const { return sources_.size(); }
  [[nodiscard]] std::size_t self() const { return self_; }
  [[nodiscard]] bool is_last() const { return self_ + 1 == sources_.size(); }

  [[nodiscard]] std::byte* slot(std::size_t member, std::uint64_t chunk) const { return window_.slot(member, chunk); }
  [[nodiscard]] std::byte* own_slot(std::uint64_t chunk) const { return window_.slot(self_, chunk); }

  // Whether all members are done with the slot's previous chunk.
  [[nodiscard]] bool slot_free(std::uint64_t chunk) { return chunk < kSlots || done_.all_reached(chunk - kSlots + 1); }
  [[nodiscard]] bool all_packed(std::uint64_t chunk) { return ready_.all_reached(chunk + 1); }
  [[nodiscard]] bool packed_by(std::size_t member, std::uint64_t chunk) { return ready_.reached(member, chunk + 1); }
  [[nodiscard]] bool all_reduced(std::uint64_t chunk) { return reduced_.all_reached(chunk + 1); }

  void packed(std::uint64_t chunk) { ready_.publish(chunk + 1, bells_); }
  // The variants of packed() for a chunk for which all others, or only the next member, wait for this member alone.
  void packed_for_all(std::uint64_t chunk) { ready_.publish_and_ring(chunk + 1, bells_); }
  void packed_for_next(std::uint64_t chunk) { ready_.publish_to(chunk + 1, bells_, next_rank_); }
  void reduced(std::uint64_t chunk) { reduced_.publish(chunk + 1, bells_); }
  void done(std::uint64_t chunk) { done_.publish(chunk + 1, bells_); }

  // Tiny operations have their own numbers and lines. Operation t uses the line that t - 2 used. This member starts t
  // only after it has read t - 1 from all members. Each of them published t - 1 only after it had read t - 2. So no
  // member reads the line any more.
  [[nodiscard]] bool tiny_free(std::uint64_t number) const { return tiny_read_ + 1 == number; }
  [[nodiscard]] std::byte* tiny_payload(std::size_t member, std::uint64_t number) const {
    return window_.tiny(member, number).payload;
  }
  void publish_tiny(std::uint64_t number);
  [[nodiscard]] bool tiny_arrived(std::uint64_t number) const {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const std::atomic_ref<std::uint64_t> published(window_.tiny(i, number).number);
      if (published.load(std::memory_order_seq_cst) < number) return false;
    }
    return true;
  }
  void read_tiny(std::uint64_t number) { tiny_read_ = number; }

  // The addresses that a path reads next, one for each member. The path may change them. Valid until the next call of
  // one of these two functions.
  [[nodiscard]] std::span<const std::byte*> sources(std::uint64_t chunk, std::size_t offset) {
    for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i] = window_.slot(i, chunk) + offset;
    return sources_;
  }
  [[nodiscard]] std::span<const std::byte*> tiny_sources(std::uint64_t number, std::size_t offset) {
    for (std::size_t i = 0; i < sources_.size(); ++i) sources_[i] = window_.tiny(i, number).payload + offset;
    return sources_;
  }
  // Scratch memory for results that are then streamed to the window.
  [[nodiscard]] std::span<std::byte> block() { return block_; }

 private:
  const std::size_t self_;
  const int next_rank_;  // -1: this is the last member
  const Window window_;
  const Bells bells_;
  CounterView ready_;
  CounterView reduced_;
  CounterView done_;
  std::uint64_t tiny_read_ = 0;  // number of the last tiny operation that this member has read
  std::vector<const std::byte*> sources_;
  alignas(64) std::array<std::byte, 8192> block_;
};

}  // namespace distrun::backend::shm
