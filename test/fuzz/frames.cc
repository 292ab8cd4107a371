// launcher/spawn/frames.h: the output of a remote login shell, the agent's greeting and its frames. The first byte
// gives the size of the pieces that arrive.
#include "launcher/spawn/frames.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/net/bytes/wire.h"
#include "test/fuzz/hosts.h"

namespace distrun::fuzz {
namespace {

constexpr std::string_view kGreeting = "hello agent\n";

// Sends `bytes` in pieces of `piece` bytes and then closes the pipe. Returns all frames as one text.
std::string heard(std::span<const std::byte> bytes, std::size_t piece, std::string& noise) {
  std::array<int, 2> ends{};
  require(::pipe2(ends.data(), O_CLOEXEC) == 0, "there is a pipe");
  Fd writes(ends[1]);
  launcher::FramePipe pipe{Fd(ends[0]), Fd()};
  pipe.await(kGreeting);
  std::string all;
  for (std::size_t at = 0; !pipe.closed(); at += piece) {
    const auto part =
        bytes.subspan(std::min(at, bytes.size()), std::min(piece, bytes.size() - std::min(at, bytes.size())));
    if (part.empty()) writes.reset();
    require(part.empty() || ::write(writes.get(), part.data(), part.size()) == static_cast<ssize_t>(part.size()),
            "a pipe takes a piece");
    for (const launcher::Frame& frame : pipe.receive()) {
      require(frame.payload.size() <= launcher::kMaxFramePayload, "a frame is bounded");
      all += std::to_string(frame.type) + ":" + std::to_string(frame.payload.size()) + " ";
      all.append(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
    }
  }
  if (!pipe.fault().ok()) require_sane(pipe.fault());
  noise = pipe.noise();
  return all;
}

}  // namespace

int frames(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = as_span(data + 1, size - 1).first(std::min<std::size_t>(size - 1, 32 << 10));
  std::string noise;
  std::string same_noise;
  const std::string whole = heard(bytes, 32 << 10, noise);
  // Long inputs arrive in few pieces, because each piece costs a read.
  const std::size_t piece = 1 + data[0] + bytes.size() / 64;
  require(heard(bytes, piece, same_noise) == whole, "frames do not depend on how they arrive");
  require(noise == same_noise, "what is no frame does not depend on how it arrives");
  return 0;
}

std::vector<Bytes> frames_seeds() {
  const auto seed = [](std::uint8_t piece, std::string_view before, bool greets, std::uint32_t claimed) {
    net::WireWriter out;
    out.u8(piece).raw(bytes_of(before));
    if (greets) out.raw(bytes_of(kGreeting));
    out.u32(3).u8(7).raw(bytes_of("abc")).u32(claimed).u8(8);
    return out.take();
  };
  return {seed(0, "", true, 0), seed(3, "Welcome to this host!\nhello agen", true, 0), seed(200, "motd", false, 0),
          seed(1, "", true, 0xFFFFFFFF)};
}

}  // namespace distrun::fuzz
