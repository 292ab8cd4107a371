// runtime/net/secure/frame.h: raw bytes from the network, and any records that a peer with the key may seal.
#include "runtime/net/secure/frame.h"

#include <algorithm>

#include "runtime/net/secure/secure_socket.h"
#include "test/fuzz/targets.h"

namespace distrun::fuzz {
namespace {

net::NoiseCipher cipher() { return net::NoiseCipher(net::NoiseKey{}); }

// Feeds pieces of `step` bytes and takes each complete frame. Returns the number of frames, or -1 if the stream is
// broken.
int open(std::span<const std::byte> bytes, std::size_t step) {
  net::FrameOpener opener(cipher());
  Bytes frame;
  int frames = 0;
  while (!bytes.empty()) {
    const auto room = opener.writable();
    require(!room.empty() && room.size() <= 2 + net::kNoiseMaxMessage, "the room is one record at most");
    const std::size_t size = std::min({step, room.size(), bytes.size()});
    std::copy_n(bytes.begin(), size, room.begin());
    bytes = bytes.subspan(size);
    opener.commit(size);
    for (;;) {
      const auto whole = opener.next(frame);
      if (!whole.ok()) return -1;
      if (!*whole) break;
      require(frame.size() <= net::kMaxFrame, "a frame is bounded");
      ++frames;
    }
  }
  return frames;
}

}  // namespace

int frame(const std::uint8_t* data, std::size_t size) {
  const auto bytes = as_span(data, size);
  if (size == 0) return 0;
  const std::size_t step = std::size_t{data[0]} + 1;
  require(open(bytes, step) <= 0, "nobody without the key makes a frame");
  // The same bytes as plaintexts of records. A byte before each plaintext is its length. This reaches all kinds of
  // marks.
  Bytes sealed;
  net::NoiseCipher sender = cipher();
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = std::min<std::size_t>(data[at], size - at - 1);
    const std::size_t record = length + net::kNoiseTagBytes;
    sealed.push_back(static_cast<std::byte>(record));
    sealed.push_back(static_cast<std::byte>(record >> 8));
    sender.encrypt({}, bytes.subspan(at + 1, length), sealed);
    at += 1 + length;
  }
  require(open(sealed, step) == open(sealed, 1000), "frames do not depend on how the bytes arrive");
  // A frame of an honest sender is read as it was written.
  Bytes honest;
  net::FrameSealer sealer(cipher());
  sealer.seal(bytes, honest);
  require(open(honest, step) == 1, "an honest frame arrives");
  return 0;
}

std::vector<Bytes> frame_seeds() {
  Bytes sealed;
  net::FrameSealer other(net::NoiseCipher(net::NoiseKey{1}));
  other.seal(Bytes(50, std::byte{7}), sealed);
  const Bytes records{std::byte{2}, std::byte{9}, std::byte{1}, std::byte{3}, std::byte{8}, std::byte{8}, std::byte{0}};
  return {sealed, records, Bytes{std::byte{1}, std::byte{0}}, Bytes{std::byte{1}, std::byte{2}}};
}

}  // namespace distrun::fuzz
