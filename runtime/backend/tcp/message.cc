#include "runtime/backend/tcp/message.h"

#include <algorithm>
#include <string>

#include "runtime/net/bytes/wire.h"

namespace distrun::backend::tcp {
namespace {

constexpr std::uint32_t kMagic = 0x31677244;  // "Drg1": a change of the layout changes the digit

}  // namespace

HeaderBytes encode(const Header& header) {
  net::WireWriter out;
  out.u32(kMagic).u8(static_cast<std::uint8_t>(header.kind)).u8(static_cast<std::uint8_t>(header.op));
  out.u16(static_cast<std::uint16_t>(header.dtype)).u64(header.sequence).u32(header.index).u32(header.bytes);
  out.i32(header.rank).u32(0);
  DISTRUN_CHECK(out.size() == kHeaderBytes, "the header's fields no longer fill its size");
  HeaderBytes bytes;
  std::ranges::copy(out.view(), bytes.begin());
  return bytes;
}

Result<Header> decode(std::span<const std::byte, kHeaderBytes> bytes) {
  net::WireReader in(bytes);
  Header header;
  if (in.u32() != kMagic) in.fail("no message starts here");
  header.kind = in.enumerator<MessageKind>(kNumMessageKinds);
  header.op = in.enumerator<OpKind>(kNumOpKinds);
  const std::uint16_t dtype = in.u16();
  if (dtype >= kNumDTypes) in.fail("unknown dtype");
  header.dtype = static_cast<DType>(in.ok() ? dtype : 0);
  header.sequence = in.u64();
  header.index = in.u32();
  header.bytes = in.u32();
  header.rank = in.i32();
  if (in.u32() != 0) in.fail("reserved bytes are set");
  DISTRUN_RETURN_IF_ERROR(in.finish("tcp message"));
  return header;
}

std::string to_string(const Header& header) {
  switch (header.kind) {
    case MessageKind::kGoodbye:
      return "goodbye";
    case MessageKind::kAbort:
      return "abort";
    case MessageKind::kData:
      break;
  }
  return "message " + std::to_string(header.index) + " of " + std::string(name_of(header.op)) + " " +
         std::to_string(header.sequence) + " (" + std::string(name_of(header.dtype)) + ", " +
         std::to_string(header.bytes) + " bytes)";
}

Status wrong_message(int rank, const Header& got, const Header& expected) {
  return {Errc::kProtocol, "tcp: rank " + std::to_string(rank) + " sent " + to_string(got) + " where " +
                               to_string(expected) +
                               " was expected: the ranks do not run the same operations in the same order. This is a "
                               "bug in distrun; please report it."};
}

}  // namespace distrun::backend::tcp
