#include "runtime/backend/tcp/message.h"

#include <algorithm>
#include <string>

#include "runtime/net/bytes/wire.h"

namespace distrun::backend::tcp {
namespace {

constexpr std::uint32_t kMagic = 0x31677244;  // "Drg1"; change the digit when the layout changes

template <class V>
void fields(V& v, net::Ref<V, Header> header) {
  std::uint32_t magic = kMagic;
  auto dtype = static_cast<std::uint16_t>(header.dtype);
  std::uint32_t reserved = 0;
  v(magic).check(magic == kMagic, "it does not begin as a message of distrun");
  v.one_of(header.kind, kNumMessageKinds).one_of(header.op, kNumOpKinds);
  v(dtype).check(dtype < kNumDTypes, "unknown dtype");
  if constexpr (V::kReads) header.dtype = static_cast<DType>(v.ok() ? dtype : 0);
  v(header.sequence, header.index, header.bytes, header.rank);
  v(reserved).check(reserved == 0, "reserved bytes are set");
}

}  // namespace

HeaderBytes encode(const Header& header) {
  net::WireWriter out;
  fields(out, header);
  DISTRUN_CHECK(out.size() == kHeaderBytes, "the header's fields no longer fill its size");
  HeaderBytes bytes;
  std::ranges::copy(out.view(), bytes.begin());
  return bytes;
}

Result<Header> decode(std::span<const std::byte, kHeaderBytes> bytes) {
  net::WireReader in(bytes);
  Header header;
  fields(in, header);
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

Status malformed(int rank, const Status& why) {
  return Status(ErrorInfo{.code = Errc::kProtocol,
                          .message = "tcp: rank " + std::to_string(rank) + " sent a malformed message: " +
                                     why.message() + ". Does its program write to a descriptor that it has closed?",
                          .ranks = {rank},
                          .cause = "a malformed message",
                          .usable = false,
                          .link = LinkEnd::kMalformed});
}

Status wrong_message(int rank, const Header& got, const Header& expected) {
  return Status(ErrorInfo{.code = Errc::kProtocol,
                          .message = "tcp: rank " + std::to_string(rank) + " sent " + to_string(got) + " where " +
                                     to_string(expected) +
                                     " was expected: the ranks do not run the same operations in the same order. "
                                     "This is a bug in distrun, please report it.",
                          .ranks = {rank},
                          .cause = "a message out of order",
                          .usable = false,
                          .link = LinkEnd::kMalformed});
}

}  // namespace distrun::backend::tcp
