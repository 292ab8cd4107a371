// How a connection to a peer ended, as far as this side can see. Values only.
#pragma once

#include <cstdint>

namespace distrun {

// Ranks send this value to the launcher: append, never renumber.
enum class LinkEnd : std::uint8_t {
  kUnknown = 0,
  kClosed = 1,       // the peer closed it
  kReset = 2,        // the kernel reports a reset
  kSilent = 3,       // sent bytes were not acknowledged within host_timeout, or the kernel gave up: a network fault
  kLargeSilent = 4,  // the same, but smaller messages pass: the MTU of the path
  kTampered = 5,     // the tag of a record is wrong: its bytes changed on the way
  kMalformed = 6,    // a message that this build cannot have sent
  kUnfinished = 7,   // a record had begun, and its rest did not arrive within host_timeout
};
inline constexpr int kLinkEnds = 8;

// The network is at fault, not a process: nothing arrives any more.
constexpr bool by_network(LinkEnd end) { return end == LinkEnd::kSilent || end == LinkEnd::kLargeSilent; }

// The bytes of a record or a message differ from what the sender wrote. The failure of a process cannot explain that.
constexpr bool is_bad_message(LinkEnd end) { return end == LinkEnd::kTampered || end == LinkEnd::kMalformed; }

// A bad message, or a record whose rest did not arrive, for instance because its sender is stopped.
constexpr bool is_bad_record(LinkEnd end) { return is_bad_message(end) || end == LinkEnd::kUnfinished; }

// How much an end says about the cause. A rank that finds a bad record or a dead network closes its other connections,
// and its peers then see only kClosed or kReset. So the end with the higher value is the cause, in whichever order the
// reports arrive.
constexpr int says(LinkEnd end) { return is_bad_message(end) ? 3 : by_network(end) ? 2 : is_bad_record(end) ? 1 : 0; }

}  // namespace distrun
