// runtime/net/secure/record_stream.h: bytes on a tensor connection under --encrypt. The first byte gives the size of
// the pieces that arrive. The second gives the expected length of a body.
#include <algorithm>
#include <cstring>

#include "runtime/net/secure/record_stream.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

constexpr std::size_t kHead = 32;
constexpr net::RecordSuite kSuite{.encrypts = true, .aes = false};

net::NoiseKey fixed_key() {
  net::NoiseKey key{};
  key.fill(7);
  return key;
}

Bytes counted(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

// How much of one message opens when it arrives in pieces of `piece` bytes: 0 nothing, 1 its head, 2 all of it.
int opened(std::span<const std::byte> wire, std::size_t body_bytes, std::size_t piece) {
  net::RecordCipher cipher(kSuite, fixed_key());
  net::RecordReader reader(cipher, kHead);
  Bytes body(body_bytes);
  net::Pieces place;
  place.add(body.data(), body.size());
  reader.place(place);
  while (!wire.empty() && !reader.has_body()) {
    net::Pieces into;
    reader.add_missing(into);
    require(into.size() <= kHead + body_bytes + 2 * net::kRecordTagBytes, "no more than one message is asked for");
    const std::size_t got = std::min({piece, wire.size(), into.data()->iov_len});
    std::memcpy(into.data()->iov_base, wire.data(), got);
    wire = wire.subspan(got);
    if (!reader.take(got)) return 0;
  }
  if (!reader.has_head()) return 0;
  require(std::ranges::equal(reader.head(), counted(kHead)), "only the head that was sealed opens");
  if (!reader.has_body() || !reader.open_body()) return 1;
  require(body.empty() || body == counted(body_bytes), "only the body that was sealed opens");
  return 2;
}

}  // namespace

int record(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto wire = as_span(data + 2, size - 2);
  const int whole = opened(wire, data[1], wire.size());
  require(opened(wire, data[1], std::size_t{1} + data[0]) == whole, "records do not depend on how they arrive");
  return 0;
}

std::vector<Bytes> record_seeds() {
  std::vector<Bytes> seeds;
  for (const std::size_t body_bytes : {std::size_t{0}, std::size_t{100}}) {
    net::RecordCipher cipher(kSuite, fixed_key());
    net::RecordWriter writer(cipher, kHead);
    const Bytes head = counted(kHead);
    const Bytes body = counted(body_bytes);
    net::Pieces pieces;
    pieces.add(head.data(), head.size());
    pieces.add(body.data(), body.size());
    require(writer.seal(head, pieces), "there are nonces");
    Bytes seed = {std::byte{3}, static_cast<std::byte>(body_bytes)};
    pieces.for_each([&](const std::byte* at, std::size_t bytes) { seed.insert(seed.end(), at, at + bytes); });
    seeds.push_back(seed);
  }
  return seeds;
}

}  // namespace distrun::fuzz
