// A non-blocking stream socket (TCP or unix) on which both ends have proved that they hold the job's key
// (Noise_NNpsk0_25519_ChaChaPoly_SHA256; docs/wire.md) before any other byte is parsed.
// Control frames are always encrypted; bulk data may travel plain after the authenticated connect (`Mode`).
// Owned and used by one thread at a time (the token holder, or the launcher's loop).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/net/world.h"

namespace distrun::net {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxFrame = std::size_t{16} << 20;

// Bound into the handshake's transcript, so that a connection cannot be replayed, reflected or used for another
// purpose.
struct Hello {
  std::string purpose;  // "store", "control", "tcp:<group>", "host"
  std::string job_id;
  int from = -1;  // world rank of the connecting side, -1 for a launcher or agent
  int to = -1;    // world rank of the accepting side, -1 for a launcher or agent; checked
  // Sent encrypted after the handshake, both ways; a difference is a kProtocol error that names both versions.
  std::string version;
};

class SecureSocket {
 public:
  virtual ~SecureSocket() = default;
  [[nodiscard]] virtual int fd() const = 0;
  [[nodiscard]] virtual const Hello& peer() const = 0;  // what the other side said of itself, verified

  // Control frames: whole messages, encrypted. send_frame queues; receive_frame returns false if none is complete.
  // Both return an error once the peer is gone (end of file, reset, bad tag), and keep returning it.
  virtual Status send_frame(std::span<const std::byte> frame) = 0;
  virtual Result<bool> receive_frame(std::vector<std::byte>& out) = 0;
  virtual Status flush() = 0;  // writes what is queued, without blocking
  [[nodiscard]] virtual bool wants_write() const = 0;

  // Blocking forms for set-up, with a deadline.
  virtual Status send_frame_blocking(std::span<const std::byte> frame, TimePoint deadline) = 0;
  virtual Result<std::vector<std::byte>> receive_frame_blocking(TimePoint deadline) = 0;

  // Gives up framing: the caller owns the authenticated descriptor and moves bulk bytes on it in the clear. Only after
  // the last control frame in both directions; an error if undelivered frame bytes are left.
  virtual Result<Fd> release_plain() = 0;
};

// Client side: connects, authenticates, checks the version. `address` is "host:port", "[v6]:port" or "unix:@abstract".
Result<std::unique_ptr<SecureSocket>> connect_secure(const std::string& address, const JobKey& key, const Hello& hello,
                                                     TimePoint deadline);

// Server side, event-driven: at most 128 peers that are not authenticated yet, at most 64 KiB held for each, closed
// 5 s after accept. A stranger costs one log line per second at most and never disturbs the owner.
class SecureListener {
 public:
  virtual ~SecureListener() = default;
  [[nodiscard]] virtual const std::string& address() const = 0;  // what connect_secure takes
  // Descriptors to watch for reading change with every call; call progress() when any of them is ready or 1 s passed.
  [[nodiscard]] virtual std::vector<int> fds() const = 0;
  // Accepts and advances handshakes without blocking; hands over each peer that has proved itself and whose Hello
  // `accept` agrees with (purpose, job, rank). `accept` returns an error text for the peer, or an empty string.
  virtual void progress(TimePoint now, const std::function<std::string(const Hello&)>& accept,
                        const std::function<void(std::unique_ptr<SecureSocket>)>& on_peer) = 0;
  // Blocks until one peer has come, or the deadline.
  virtual Result<std::unique_ptr<SecureSocket>> accept_blocking(const std::function<std::string(const Hello&)>& accept,
                                                                TimePoint deadline) = 0;
};

// `bind_address`: "127.0.0.1:0", "[::1]:0" or "unix:@abstract". `self` is what this side says of itself.
Result<std::unique_ptr<SecureListener>> listen_secure(const std::string& bind_address, const JobKey& key,
                                                      const Hello& self);

}  // namespace distrun::net
