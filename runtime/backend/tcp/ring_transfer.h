// One operation under way on the ring: its schedule, how far it has come, and its memory and arithmetic. Knows no
// sockets.
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

// Chunk-sized buffers shared by all transfers of a group. The last one given back is the next one lent: it is still in
// cache. Two windows of them are enough for a ring that never locks up (docs/wire.md has the argument).
class ChunkPool {
 public:
  ChunkPool(std::size_t chunk_bytes, std::size_t chunks) : chunk_bytes_(chunk_bytes), left_(chunks) {}
  [[nodiscard]] bool empty() const { return free_.empty() && left_ == 0; }
  std::byte* lend();  // only when not empty
  void give_back(std::byte* chunk) { free_.push_back(chunk); }

 private:
  std::size_t chunk_bytes_;
  std::size_t left_;  // chunks not allocated yet
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
  // Before anything else: memory for all members' inputs, where it takes that. kOutOfMemory.
  Status reserve();

  [[nodiscard]] std::uint64_t token() const { return token_; }
  [[nodiscard]] bool sent_all() const { return sent_ == sends_; }
  [[nodiscard]] bool received_all() const { return received_ == receives_; }
  [[nodiscard]] bool complete() const { return sent_all() && received_all(); }

  // The header of the message that is next in either direction.
  [[nodiscard]] Header next_send() const;
  [[nodiscard]] Header next_receive() const;

  // True when what the next message carries has been received. add_send() then puts its payload's memory into `pieces`;
  // end_send() when the last byte has been handed to the system.
  [[nodiscard]] bool can_send() const;
  void add_send(Pieces& pieces);
  void end_send();

  // False while no memory is free for the next message, which some send will free; else `pieces` gets the memory its
  // payload goes to. end_receive() when all of it is there: adds up.
  bool add_receive(Pieces& pieces);
  void end_receive();

  // Once complete(): what has to be done locally.
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
  std::vector<std::byte> scaled_;        // a prescaled chunk of the own input, on its way out
  std::vector<std::byte> own_scaled_;    // the same, on its way into a sum
  std::deque<std::byte*> partials_;      // received, combined, not sent on yet; in order
  std::byte* landing_ = nullptr;         // lent for the message that is being received
};

}  // namespace distrun::backend::tcp
