// One operation in flight on the ring: its schedule, its progress, its memory and its arithmetic. Does not use sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/tcp/layout.h"
#include "runtime/backend/tcp/schedule.h"
#include "runtime/backend/tcp/stream.h"

namespace distrun::backend::tcp {

// Chunk-sized buffers, shared by all transfers of a group. The buffer that was returned last is lent next, because it
// is still in the cache. Two windows of buffers are enough to prevent a deadlock of the ring (docs/internals/wire.md
// has the proof).
class ChunkPool {
 public:
  ChunkPool(std::size_t chunk_bytes, std::size_t chunks) : chunk_bytes_(chunk_bytes), left_(chunks) {}
  [[nodiscard]] bool empty() const { return free_.empty() && left_ == 0; }
  std::byte* lend();  // only if not empty
  void give_back(std::byte* chunk) { free_.push_back(chunk); }

 private:
  std::size_t chunk_bytes_;
  std::size_t left_;  // number of chunks that may still be allocated
  std::vector<std::unique_ptr<std::byte[]>> owned_;
  std::vector<std::byte*> free_;
};

struct RingTransferArgs {
  std::uint64_t token = 0;
  std::uint64_t sequence = 0;
  std::size_t size = 1;
  std::size_t index = 0;
  Tuning tuning;
  ChunkPool* pool = nullptr;
};

class RingTransfer {
 public:
  RingTransfer(const Operation& operation, const RingTransferArgs& args);
  // Call this first. Allocates memory for all members' inputs if the schedule needs it. Error: kOutOfMemory.
  Status reserve();

  [[nodiscard]] std::uint64_t token() const { return token_; }
  [[nodiscard]] bool sent_all() const { return sent_ == sends_; }
  [[nodiscard]] bool received_all() const { return received_ == receives_; }
  [[nodiscard]] bool complete() const { return sent_all() && received_all(); }

  // The header of the next message to send or to receive.
  [[nodiscard]] Header next_send() const;
  [[nodiscard]] Header next_receive() const;

  // can_send() is true when the data of the next message has been received. Then add_send() adds the payload's memory
  // to `pieces`. Call end_send() after the kernel has taken the last byte.
  [[nodiscard]] bool can_send() const;
  void add_send(Pieces& pieces);
  void end_send();

  // add_receive() adds the memory for the next payload to `pieces`. It returns false if no chunk is free; a later send
  // will free one. Call end_receive() when the payload is complete; it does the reduction.
  bool add_receive(Pieces& pieces);
  void end_receive();

  // Call this once complete() is true. Does the work that remains for this member.
  void finish();

 private:
  void combine(bool last);
  void keep_input(const Transfer& transfer);
  [[nodiscard]] bool reduces() const;
  [[nodiscard]] bool in_blocks() const;
  [[nodiscard]] std::size_t bytes_of(const Transfer& transfer) const;
  [[nodiscard]] Header header(const Transfer& transfer, std::size_t index) const;
  const std::byte* prescaled(const std::byte* in, std::size_t count, std::byte* scratch) const;

  Operation operation_;
  std::uint64_t token_;
  std::uint64_t sequence_;
  std::size_t size_;
  std::size_t index_;
  Tuning tuning_;
  ChunkPool* pool_;
  Layout layout_;
  std::unique_ptr<Schedule> schedule_;  // null in a group of one
  std::size_t sends_ = 0, receives_ = 0;
  std::size_t sent_ = 0, received_ = 0;
  std::unique_ptr<std::byte[]> blocks_;  // Place::kBlock
  std::vector<std::byte> scaled_;        // a prescaled chunk of this member's input, to be sent
  std::vector<std::byte> own_scaled_;    // a prescaled chunk of this member's input, to be added to a sum
  std::deque<std::byte*> partials_;      // received and combined, not sent yet; in order
  std::byte* target_ = nullptr;          // the lent chunk for the message that is being received
};

}  // namespace distrun::backend::tcp
