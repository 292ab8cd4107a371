// Whether the bytes of a connection still arrive at the other host. A reader that is slow or stopped is no broken
// network: its kernel goes on acknowledging, and answers the probes of a full window, for as long as it lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/base/link_end.h"

namespace distrun::net {

// What the kernel knows of a TCP connection.
struct AckFacts {
  std::uint64_t acknowledged = 0;           // bytes, since it began
  std::size_t in_flight = 0;                // bytes that were sent and are not acknowledged
  std::size_t queued = 0;                   // bytes that the peer's window has no room for, or that wait for their turn
  bool window_closed = false;               // the peer takes none now
  bool asked = false;                       // the kernel has probed the peer, and nothing has come since
  Duration since_heard = Duration::zero();  // since the peer's kernel has acknowledged anything, were it twice
};

// Empty: it is no TCP connection.
std::optional<AckFacts> ack_facts(int fd);

// Judges one connection. Pure: the clock, the limit and the facts are the caller's.
class AckWatch {
 public:
  enum class State : std::uint8_t {
    kQuiet,     // nothing is under way: it need not be looked at before something is sent
    kWaiting,   // look again in a second
    kDoubtful,  // half of the limit is over: find out whether the host can be reached at all
    kEnded,     // end() says how
  };
  // A host that can be reached by other packets gets time for so many retransmissions that loss cannot be the reason.
  static constexpr Duration kPatience = std::chrono::seconds(13);
  // Packets of this size pass everywhere; only larger ones have trouble with an MTU.
  static constexpr std::size_t kSmall = 536;

  // `reached`: the host has answered other packets since it is in doubt.
  State look(const AckFacts& facts, TimePoint now, Duration limit, bool reached);
  [[nodiscard]] LinkEnd end() const { return end_; }

 private:
  enum class Missing : std::uint8_t { kNothing, kAcknowledgement, kAnswer };

  Missing missing_ = Missing::kNothing;
  TimePoint since_;   // nothing has come of what is missing
  TimePoint looked_;  // last
  std::uint64_t acknowledged_ = 0;
  LinkEnd end_ = LinkEnd::kUnknown;
};

}  // namespace distrun::net
