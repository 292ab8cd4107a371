#include "runtime/backend/tcp/pairwise.h"

#include <algorithm>

namespace distrun::backend::tcp {

Header PairwiseTransfer::header(std::size_t done, std::size_t block, std::size_t chunk_bytes) const {
  return {.kind = MessageKind::kData,
          .op = OpKind::kAlltoall,
          .dtype = operation.dtype,
          .sequence = sequence,
          .index = static_cast<std::uint32_t>(done / chunk_bytes),
          .bytes = static_cast<std::uint32_t>(std::min(chunk_bytes, block - done))};
}

PairwiseTransfer make_pairwise(const Operation& operation, std::uint64_t token, std::uint64_t sequence,
                               std::size_t index, std::size_t size) {
  DISTRUN_CHECK(operation.counts.size() == size * size, "an alltoall needs the counts of all pairs");
  const std::size_t unit = size_of(operation.dtype);
  PairwiseTransfer transfer{.operation = operation, .token = token, .sequence = sequence, .in = {0}, .out = {0}};
  for (std::size_t peer = 0; peer < size; ++peer) {
    transfer.in.push_back(transfer.in.back() + operation.counts[index * size + peer] * unit);
    transfer.out.push_back(transfer.out.back() + operation.counts[peer * size + index] * unit);
    if (peer == index) continue;
    if (transfer.bytes_to(peer) > 0) ++transfer.sends;
    if (transfer.bytes_from(peer) > 0) ++transfer.receives;
  }
  return transfer;
}

std::uint64_t PairwiseTransfers::first_to_send() const {
  const auto found = std::ranges::find_if(transfers_, [](const PairwiseTransfer& one) { return one.sends > 0; });
  return first_ + static_cast<std::uint64_t>(found - transfers_.begin());
}

}  // namespace distrun::backend::tcp
