// runtime/backend/tcp/message.h: the header before each piece of a tensor on a ring's sockets.
#include <algorithm>

#include "runtime/backend/tcp/message.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

namespace tcp = backend::tcp;

Bytes bytes_of(const tcp::Header& header) {
  const tcp::HeaderBytes bytes = tcp::encode(header);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

int ring(const std::uint8_t* data, std::size_t size) {
  tcp::HeaderBytes bytes{};
  std::copy_n(as_span(data, size).begin(), std::min(size, bytes.size()), bytes.begin());
  const auto header = tcp::decode(bytes);
  if (!header.ok()) return 0;
  require(static_cast<int>(header->kind) < tcp::kNumMessageKinds, "a kind of message that there is");
  require(static_cast<int>(header->op) < kNumOpKinds, "an operation that there is");
  require(static_cast<int>(header->dtype) < kNumDTypes, "a dtype that there is");
  require(tcp::encode(*header) == bytes, "what is taken is what a ring writes");
  require(!tcp::to_string(*header).empty(), "it can be told of");
  return 0;
}

std::vector<Bytes> ring_seeds() {
  return {bytes_of({.op = OpKind::kAlltoall, .dtype = DType::kF64, .sequence = 1ULL << 40, .index = 3, .bytes = 4096}),
          bytes_of({.kind = tcp::MessageKind::kGoodbye}), bytes_of({.kind = tcp::MessageKind::kAbort, .rank = 7})};
}

}  // namespace distrun::fuzz
