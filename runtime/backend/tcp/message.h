// What travels between the members of a group: a fixed header, then for kData the payload. Docs: docs/wire.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/status.h"
#include "runtime/base/types.h"

namespace distrun::backend::tcp {

enum class MessageKind : std::uint8_t {
  kData = 0,
  kGoodbye = 1,  // the sender has closed its group in good order; an end of file between messages says the same
  kAbort = 2,    // the sender gave up; `rank` is the world rank whose loss made it do so, or -1
};
inline constexpr int kNumMessageKinds = 3;

struct Header {
  MessageKind kind = MessageKind::kData;
  OpKind op = OpKind::kAllreduce;
  DType dtype = DType::kU8;
  std::uint64_t sequence = 0;  // operations started on this group before this one
  std::uint32_t index = 0;     // message number of the operation in this direction of this link
  std::uint32_t bytes = 0;     // of payload; the receiver knows how many there must be
  std::int32_t rank = -1;
  friend bool operator==(const Header&, const Header&) = default;
};

inline constexpr std::size_t kHeaderBytes = 32;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes encode(const Header& header);
Result<Header> decode(std::span<const std::byte, kHeaderBytes> bytes);
std::string to_string(const Header& header);  // "message 3 of allreduce 17 (float32, 4096 bytes)"
// World rank `rank` sent what no member sends, as `why` says.
Status malformed(int rank, const Status& why);
// World rank `rank` sent `got`.
Status wrong_message(int rank, const Header& got, const Header& expected);

}  // namespace distrun::backend::tcp
