// Detects whether the bytes of a connection still arrive at the other host. A reader that is slow or stopped is not a
// network failure: its kernel keeps acknowledging bytes and answering the probes of a full window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/link_end.h"

namespace distrun::net {

// The kernel's facts about a TCP connection.
struct AckFacts {
  std::uint64_t acknowledged = 0;  // bytes, since the connection began
  std::size_t in_flight = 0;       // bytes that were sent and not yet acknowledged
  std::size_t queued = 0;          // bytes not sent yet: the peer's window has no room, or it is not their turn
  bool window_closed = false;      // the peer's receive window is zero
  bool asked = false;              // the kernel has probed the peer and has received nothing since
  Duration since_last_message = Duration::zero();  // since the peer's last acknowledgement, duplicates included
};

// Empty if `fd` is not a TCP connection.
std::optional<AckFacts> ack_facts(int fd);
// True if the kernel had to send a packet of this connection again, the first one included.
bool has_retransmitted(int fd);

// What became of small packets to the same host since a connection became doubtful.
enum class SmallPackets : std::uint8_t {
  kNoAnswer,
  kSomeLost,  // there were answers, and packets were lost
  kAllPass,   // several were answered, and none was lost
};

// Judges one connection. Pure: the caller provides the clock, the limit and the facts.
class AckWatch {
 public:
  enum class State : std::uint8_t {
    kQuiet,     // no bytes are in flight or queued: look again only after something was sent
    kWaiting,   // look again in one second
    kDoubtful,  // half of the limit has passed: find out whether the host answers at all
    kEnded,     // end() says how
  };
  // Minimum limit for a host that answers other packets. It allows so many retransmissions that packet loss cannot be
  // the reason.
  static constexpr Duration kTimeLimit = std::chrono::seconds(13);
  // Every path passes packets of this size. Only larger packets can exceed an MTU.
  static constexpr std::size_t kSmall = 536;

  State look(const AckFacts& facts, TimePoint now, Duration limit, SmallPackets small);
  [[nodiscard]] LinkEnd end() const { return end_; }

 private:
  enum class Missing : std::uint8_t { kNothing, kAcknowledgement, kAnswer };

  Missing missing_ = Missing::kNothing;
  TimePoint since_;   // when the missing thing last made progress
  TimePoint looked_;  // time of the last look()
  std::uint64_t acknowledged_ = 0;
  LinkEnd end_ = LinkEnd::kUnknown;
};

}  // namespace distrun::net
