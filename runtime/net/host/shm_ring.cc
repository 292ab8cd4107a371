#include "runtime/net/host/shm_ring.h"

#include <algorithm>
#include <cstring>

namespace distrun::net {

std::size_t RingWriter::space() const {
  // If foreign code has overwritten the reader's word, there is no space: bytes that are unread are not overwritten.
  const std::uint64_t used = head_ - tail_;
  return used > RingMemory::kBytes ? 0 : RingMemory::kBytes - static_cast<std::size_t>(used);
}

std::size_t RingWriter::put(std::span<const std::byte> bytes) {
  (void)has_space(bytes.size());
  const std::size_t size = std::min(bytes.size(), space());
  const std::size_t start = head_ % RingMemory::kBytes;
  const std::size_t first = std::min(size, RingMemory::kBytes - start);
  std::copy_n(bytes.data(), first, ring_->bytes.data() + start);
  std::copy_n(bytes.data() + first, size - first, ring_->bytes.data());
  head_ += size;
  return size;
}

void RingReader::peek(std::size_t offset, std::span<std::byte> out) const {
  const std::size_t start = (tail_ + offset) % RingMemory::kBytes;
  const std::size_t first = std::min(out.size(), RingMemory::kBytes - start);
  std::copy_n(ring_->bytes.data() + start, first, out.data());
  std::copy_n(ring_->bytes.data(), out.size() - first, out.data() + first);
}

bool RingReader::consume(std::size_t size) {
  tail_ += size;
  ring_->tail.store(tail_, std::memory_order_seq_cst);
  if (ring_->starved.load(std::memory_order_seq_cst) == 0) return false;
  ring_->starved.store(0, std::memory_order_seq_cst);
  return true;
}

}  // namespace distrun::net
