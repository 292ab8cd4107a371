// Messages between the members of a group: a fixed header, and for kData the payload. See docs/internals/wire.md.
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
  kGoodbye = 1,  // the sender has closed its group normally; an end of file between messages means the same
  kAbort = 2,    // the sender aborted; `rank` is the world rank whose loss is the cause, or -1
};
inline constexpr int kNumMessageKinds = 3;

struct Header {
  MessageKind kind = MessageKind::kData;
  OpKind op = OpKind::kAllreduce;
  DType dtype = DType::kU8;
  std::uint64_t sequence = 0;  // operations started on this group before this one
  std::uint32_t index = 0;     // number of the message within the operation, in this direction of this link
  std::uint32_t bytes = 0;     // payload bytes; the receiver knows the expected value
  std::int32_t rank = -1;
  friend bool operator==(const Header&, const Header&) = default;
};

inline constexpr std::size_t kHeaderBytes = 32;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes encode(const Header& header);
Result<Header> decode(std::span<const std::byte, kHeaderBytes> bytes);
std::string to_string(const Header& header);  // "message 3 of allreduce 17 (float32, 4096 bytes)"
// The error for bytes from world rank `rank` that are not a valid message. `why` has the details.
Status malformed(int rank, const Status& why);
// The error for a valid but unexpected message `got` from world rank `rank`.
Status wrong_message(int rank, const Header& got, const Header& expected);

}  // namespace distrun::backend::tcp
