// The all-to-alls in flight: what this member still has to send to each other member and to receive from it. Does not
// use sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/tcp/message.h"

namespace distrun::backend::tcp {

struct PairwiseTransfer {
  Operation operation;
  std::uint64_t token = 0;
  std::uint64_t sequence = 0;
  // Byte offsets: member i's block begins at [i], in the input and in the output.
  std::vector<std::size_t> in, out;
  std::size_t sends = 0, receives = 0;  // blocks that are not complete yet

  [[nodiscard]] std::size_t bytes_to(std::size_t peer) const { return in[peer + 1] - in[peer]; }
  [[nodiscard]] std::size_t bytes_from(std::size_t peer) const { return out[peer + 1] - out[peer]; }
  // The header of the message that begins at byte `done` of a block of `block` bytes.
  [[nodiscard]] Header header(std::size_t done, std::size_t block, std::size_t chunk_bytes) const;
};

// `index` is this member's position in the group of `size` members.
PairwiseTransfer make_pairwise(const Operation& operation, std::uint64_t token, std::uint64_t sequence,
                               std::size_t index, std::size_t size);

// The transfers in the order of their start. Each has a number, counted from the first transfer of the group.
class PairwiseTransfers {
 public:
  void push(PairwiseTransfer transfer) { transfers_.push_back(std::move(transfer)); }
  void pop() {
    transfers_.pop_front();
    ++first_;
  }
  void clear() { transfers_.clear(); }

  [[nodiscard]] bool empty() const { return transfers_.empty(); }
  [[nodiscard]] std::uint64_t first() const { return first_; }
  [[nodiscard]] std::uint64_t end() const { return first_ + transfers_.size(); }
  [[nodiscard]] PairwiseTransfer& operator[](std::uint64_t number) { return transfers_[number - first_]; }
  [[nodiscard]] const PairwiseTransfer& operator[](std::uint64_t number) const { return transfers_[number - first_]; }
  // The number of the first transfer that has something to send; end() if there is none.
  [[nodiscard]] std::uint64_t first_to_send() const;

 private:
  std::deque<PairwiseTransfer> transfers_;
  std::uint64_t first_ = 0;
};

}  // namespace distrun::backend::tcp
