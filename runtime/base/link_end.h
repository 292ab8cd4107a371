// How a connection to a peer ended, as far as this side can tell. Values only.
#pragma once

#include <cstdint>

namespace distrun {

// Ranks tell the launcher the value: append, never renumber.
enum class LinkEnd : std::uint8_t {
  kUnknown = 0,
  kClosed = 1,       // the peer closed it
  kReset = 2,        // the kernel reports a reset
  kSilent = 3,       // bytes of ours were not acknowledged for host_timeout, or the kernel gave up: the network
  kLargeSilent = 4,  // the same while smaller messages pass: the path's MTU
  kTampered = 5,     // a record's tag is wrong: its bytes were changed on the way
  kMalformed = 6,    // a message that this build cannot have sent
  kUnfinished = 7,   // a record had begun and was not whole within host_timeout
};
inline constexpr int kLinkEnds = 8;

// The network or the bytes on it are at fault, and not a process.
constexpr bool by_network(LinkEnd end) { return end == LinkEnd::kSilent || end == LinkEnd::kLargeSilent; }

}  // namespace distrun
