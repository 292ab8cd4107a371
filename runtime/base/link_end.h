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

// Nothing arrives: the network is at fault, and not a process.
constexpr bool by_network(LinkEnd end) { return end == LinkEnd::kSilent || end == LinkEnd::kLargeSilent; }

// The bytes of a record or a message are not what its sender meant. Nothing that happens to a process explains that.
constexpr bool is_bad_message(LinkEnd end) { return end == LinkEnd::kTampered || end == LinkEnd::kMalformed; }

// The same, or the rest of it did not come, as from a process that is stopped.
constexpr bool is_bad_record(LinkEnd end) { return is_bad_message(end) || end == LinkEnd::kUnfinished; }

// Who finds one of the others closes its own connections: what says more is the cause, in whichever order they come.
constexpr int says(LinkEnd end) { return is_bad_message(end) ? 3 : by_network(end) ? 2 : is_bad_record(end) ? 1 : 0; }

}  // namespace distrun
