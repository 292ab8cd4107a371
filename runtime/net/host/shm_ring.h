// A ring buffer of bytes in shared memory with one writer and one reader. The positions only grow (64 bits never wrap).
// The writer publishes with a seq_cst store and then rings the reader. The reader gives space back with a seq_cst
// store. It rings the writer only if the writer waits for space (`starved`), so that reading causes no needless
// wake-ups. One thread uses each side: the holder of the rank's progress token.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace distrun::net {

struct RingMemory {
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  // The writer's line and the reader's line. Each has two cache lines, because the hardware fetches them in pairs.
  alignas(128) std::atomic<std::uint64_t> head{0};
  std::atomic<std::uint32_t> starved{0};  // the writer sets it; the reader clears it before it rings
  alignas(128) std::atomic<std::uint64_t> tail{0};
  alignas(128) std::array<std::byte, kBytes> bytes{};
};

class RingWriter {
 public:
  explicit RingWriter(RingMemory* ring) : ring_(ring) {}
  // True if `size` bytes fit now.
  bool has_space(std::size_t size) {
    if (space() >= size) return true;
    tail_ = ring_->tail.load(std::memory_order_seq_cst);
    return space() >= size;
  }
  // Copies as many bytes as fit. The reader sees them after publish().
  std::size_t put(std::span<const std::byte> bytes);
  void publish() { ring_->head.store(head_, std::memory_order_seq_cst); }
  // Asks the reader to ring after it has given space back. Check for space again afterwards, because the reader may
  // have given space back just before. doorbell.h proves this pattern; its two words are here the flag and the tail.
  void mark_starved() { ring_->starved.store(1, std::memory_order_seq_cst); }

 private:
  [[nodiscard]] std::size_t space() const;
  RingMemory* ring_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;  // as last read
};

class RingReader {
 public:
  explicit RingReader(RingMemory* ring) : ring_(ring) {}
  // The number of bytes that can be read; one load if there are none. More than kBytes means that the writer's word is
  // corrupt.
  [[nodiscard]] std::size_t available() const {
    return static_cast<std::size_t>(ring_->head.load(std::memory_order_seq_cst) - tail_);
  }
  // Copies bytes that start `offset` after the tail. They must be available.
  void peek(std::size_t offset, std::span<std::byte> out) const;
  // Gives space back. Returns true if the writer waits for it and must be rung.
  [[nodiscard]] bool consume(std::size_t size);

 private:
  RingMemory* ring_;
  std::uint64_t tail_ = 0;
};

}  // namespace distrun::net
