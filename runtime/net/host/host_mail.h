// Sends packets with descriptors between the ranks of one host, for the set-up and for later shares. Each rank reads
// its own inbox. All other ranks hold the outer end of that socket pair (host_peers.h) and write to it. Blocking, with
// deadlines. Only the holder of the progress token uses this. Only ranks that proved the job's key hold an outer end.
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

// Bytes and descriptors from a unix socket (SCM_RIGHTS). At most kMaxPassedFds descriptors at once.
struct WithFds {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;  // close-on-exec
};
inline constexpr std::size_t kMaxPassedFds = 240;  // the kernel's limit is 253

Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds, TimePoint deadline);
// Empty bytes mean end of file. Takes at most `limit` bytes; a longer packet is an error.
Result<WithFds> receive_with_fds(int socket, std::size_t limit, TimePoint deadline);

struct Packet {
  enum class Kind : std::uint8_t { kInvite, kPeers, kProof, kMemory, kMapped, kVerdict };
  Kind kind = Kind::kVerdict;
  int from = -1;    // world rank
  std::string tag;  // the set-up or share that the packet belongs to
  Status error;     // if not ok, the sender's part failed, and this ends the wait for any packet of this tag
  std::vector<std::byte> body;
  std::vector<Fd> fds;  // received
};

// A peer to watch while waiting. If it ends, the wait ends.
struct Watched {
  int rank = -1;
  int mail_box = -1;
};

class HostMail {
 public:
  explicit HostMail(int inbox) : inbox_(inbox) {}

  // Sends `packet` with `fds`; packet.fds is ignored. kRankLost if the receiver is gone.
  static Status send(const Watched& to, const Packet& packet, std::span<const int> fds, TimePoint deadline);

  struct Wanted {
    Packet::Kind kind;
    int from;
    std::string_view tag;
  };
  // Returns the next packet that matches; other packets stay queued. Errors: the error in the packet, kRankLost with
  // the first watched rank that is gone, or kTimeout.
  Result<Packet> receive(const Wanted& wanted, std::span<const Watched> watched, TimePoint deadline);
  // The same, but returns a packet with an error as a packet. So the caller can tell its sender's failure from a
  // failure of this rank.
  Result<Packet> receive_even_error(const Wanted& wanted, std::span<const Watched> watched, TimePoint deadline);

 private:
  Status take_all();  // reads all packets that have arrived, without blocking

  int inbox_;
  bool at_end_ = false;
  std::deque<Packet> waiting_;
};

}  // namespace distrun::net
