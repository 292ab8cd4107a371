// A ring of bytes in shared memory with one writer and one reader. Positions run freely (64 bits never wrap).
// The writer publishes with a seq_cst store and then rings the reader; the reader gives space back with a seq_cst store
// and rings the writer only if that said that it waits for space (`starved`), so that reading wakes nobody else.
// Each side is used by one thread (its rank's progress-token holder).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace distrun::net {

struct RingMemory {
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  // The writer's line and the reader's line; two cache lines each, since the hardware fetches pairs.
  alignas(128) std::atomic<std::uint64_t> head{0};
  std::atomic<std::uint32_t> starved{0};  // set by the writer, cleared by the reader before it rings
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
  // Copies as much as fits; the reader sees it after publish().
  std::size_t put(std::span<const std::byte> bytes);
  void publish() { ring_->head.store(head_, std::memory_order_seq_cst); }
  // Asks the reader to ring once it has given space back. Look for space again afterwards: it may have done so just
  // before. The flag and the tail are the two words of the same argument as in doorbell.h.
  void mark_starved() { ring_->starved.store(1, std::memory_order_seq_cst); }

 private:
  [[nodiscard]] std::size_t space() const;
  RingMemory* ring_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;  // as last seen
};

class RingReader {
 public:
  explicit RingReader(RingMemory* ring) : ring_(ring) {}
  // Bytes that can be read; one load when there are none. More than kBytes: the writer's word makes no sense.
  [[nodiscard]] std::size_t available() const {
    return static_cast<std::size_t>(ring_->head.load(std::memory_order_seq_cst) - tail_);
  }
  // Copies bytes from `offset` behind the tail on; they must be available.
  void peek(std::size_t offset, std::span<std::byte> out) const;
  // Gives space back; true if the writer waits for it and must be rung.
  [[nodiscard]] bool consume(std::size_t size);

 private:
  RingMemory* ring_;
  std::uint64_t tail_ = 0;
};

}  // namespace distrun::net
