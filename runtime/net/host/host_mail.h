// Packets with descriptors between the ranks of one host: set-up, and shares made later. Each rank reads its own inbox;
// all others hold the outer end of that socket pair (host_peers.h) and write to it.
// Blocking, with deadlines; for the holder of the progress token. Only ranks that proved the job's key hold a box.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::net {

// Bytes with descriptors on a unix socket (SCM_RIGHTS). At most kMaxPassedFds at once.
struct WithFds {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;  // close-on-exec
};
inline constexpr std::size_t kMaxPassedFds = 240;  // the kernel's limit is 253

Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds, TimePoint deadline);
// Empty bytes: end of file. Takes at most `limit` bytes; a longer packet is an error.
Result<WithFds> receive_with_fds(int socket, std::size_t limit, TimePoint deadline);

struct Packet {
  enum class Kind : std::uint8_t { kInvite, kPeers, kProof, kMemory, kMapped, kVerdict };
  Kind kind = Kind::kVerdict;
  int from = -1;    // world rank
  std::string tag;  // which set-up or share it belongs to
  Status error;     // not ok: the sender's part failed; ends the wait for any packet of this tag
  std::vector<std::byte> body;
  std::vector<Fd> fds;  // received
};

// A rank whose end ends the wait.
struct Watched {
  int rank = -1;
  int mail_box = -1;
};

class HostMail {
 public:
  explicit HostMail(int inbox) : inbox_(inbox) {}

  // `fds` are passed along; packet.fds is not looked at. kRankLost if that rank is gone.
  static Status send(const Watched& to, const Packet& packet, std::span<const int> fds, TimePoint deadline);

  struct Wanted {
    Packet::Kind kind;
    int from;
    std::string_view tag;
  };
  // The next packet like that; others wait for their turn. The packet's own error, kRankLost naming the first watched
  // rank that is gone, or kTimeout.
  Result<Packet> receive(const Wanted& wanted, std::span<const Watched> watched, TimePoint deadline);
  // The same, but a packet with an error is a packet: tells what its sender could not do from what this rank cannot.
  Result<Packet> receive_even_error(const Wanted& wanted, std::span<const Watched> watched, TimePoint deadline);

 private:
  Status take_all();  // what has arrived, without blocking

  int inbox_;
  bool at_end_ = false;
  std::deque<Packet> waiting_;
};

}  // namespace distrun::net
