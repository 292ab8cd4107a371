// A non-blocking stream socket (TCP or unix) on which both ends have proved that they hold the job's key
// (Noise_NNpsk0_25519_ChaChaPoly_SHA256; docs/wire.md) before any other byte is parsed.
// Control frames are always encrypted; bulk data travels as its owner decides after the authenticated connect.
// Owned and used by one thread at a time (the token holder, or the launcher's loop).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/secure/noise.h"

namespace distrun {
class Log;
}

namespace distrun::net {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxFrame = std::size_t{16} << 20;

// Bound into the handshake's transcript, so that a connection cannot be replayed, reflected or used for another
// purpose. Texts are at most 128 bytes each.
struct Hello {
  std::string purpose;  // "store", "control", "tcp:<group>", "host"
  std::string job_id;
  // World ranks; -1 for the launcher.
  int from = -1;  // the connecting side
  int to = -1;    // the accepting side; checked
  // Sent encrypted in the handshake, both ways; a difference is a kProtocol error that names both versions. This
  // build's own version when empty.
  std::string version;
  // Process id as the other side told it, or as the kernel did (SO_PEERCRED) on a unix socket. This process's own
  // when 0.
  int pid = 0;
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
  [[nodiscard]] virtual std::size_t queued() const = 0;  // bytes that flush() has still to write

  // The number of the record of which a part has come and the rest has not; 0: there is none.
  [[nodiscard]] virtual std::uint64_t begun() const = 0;
  // The owner has found the connection at its end. Returns the error that both directions give from now on.
  virtual Status give_up(LinkEnd end, const std::string& how) = 0;

  // Blocking forms for set-up, with a deadline.
  virtual Status send_frame_blocking(std::span<const std::byte> frame, TimePoint deadline) = 0;
  virtual Result<std::vector<std::byte>> receive_frame_blocking(TimePoint deadline) = 0;

  // Gives up framing: the caller owns the authenticated descriptor (non-blocking) and moves bulk bytes on it in the
  // clear, or in records of its own; a slow reader no longer ends the connection. Safe right after connecting and
  // accepting, on both sides; later only when both sides know that no frame is under way. An error if frame bytes are
  // left in either direction.
  virtual Result<Fd> release_plain() = 0;
  // What a record layer of the bulk user's own makes its keys from (record_cipher.h).
  [[nodiscard]] virtual const ExportedKeys& exported_keys() const = 0;
};

// Client side: connects, authenticates, checks the version. `address` is "host:port", "[v6]:port" or "unix:@abstract".
Result<std::unique_ptr<SecureSocket>> connect_secure(const std::string& address, const JobKey& key, const Hello& hello,
                                                     TimePoint deadline);

// Server side, event-driven: at most 128 peers that are not authenticated yet, at most 2 KiB held for each, closed
// 5 s after accept; when the 129th comes, the oldest that has been silent for 100 ms goes, and until there is one the
// kernel keeps the others. Strangers together cost one log line per second at most and never disturb the owner.
class SecureListener {
 public:
  // Returns why the peer is refused (it will report the text), or an empty string to welcome it.
  using AcceptFunction = std::function<std::string(const Hello&)>;
  using PeerFunction = std::function<void(std::unique_ptr<SecureSocket>)>;

  virtual ~SecureListener() = default;
  [[nodiscard]] virtual const std::string& address() const = 0;  // what connect_secure takes
  // Readable whenever progress() has something to do, closing a silent stranger included. One descriptor (an epoll
  // set), the same for the listener's whole life; watch it for reading.
  [[nodiscard]] virtual int fd() const = 0;
  // Accepts and advances handshakes without blocking; hands over each peer that has proved itself and whose Hello
  // `accept` agrees with (purpose, job, rank; none = everybody of this job). Neither function may destroy the listener.
  virtual void progress(TimePoint now, const AcceptFunction& accept, const PeerFunction& on_peer) = 0;
  // Blocks until one peer has come, or the deadline.
  virtual Result<std::unique_ptr<SecureSocket>> accept_blocking(const AcceptFunction& accept, TimePoint deadline) = 0;
};

// accept_blocking() that hears of a peer that dies on its way: `news` is asked now and then, and its error ends the
// wait.
Result<std::unique_ptr<SecureSocket>> accept_or_news(SecureListener& listener,
                                                     const SecureListener::AcceptFunction& accept, TimePoint deadline,
                                                     const std::function<Status()>& news);

// `bind_address`: "127.0.0.1:0", "[::1]:0", "*:0" (all addresses), "unix:@abstract", or "unix:@" for a random abstract
// name. `self` is what this side says of itself: a peer must name its job_id and version and aim at its `from`; if
// `purpose` is not empty, a peer must have the same one, otherwise `accept` decides. `log`, if given, outlives the
// listener and is told about strangers, and once when descriptors run out.
Result<std::unique_ptr<SecureListener>> listen_secure(const std::string& bind_address, const JobKey& key,
                                                      const Hello& self, const Log* log = nullptr);

// The same on a socket that listens already (listen_stream), for an owner who gets the key later than it must tell its
// port: whoever has connected meanwhile is served now. `address` is what listen_stream made of it.
Result<std::unique_ptr<SecureListener>> listen_secure_on(Fd listening, const std::string& address, const JobKey& key,
                                                         const Hello& self, const Log* log = nullptr);

}  // namespace distrun::net
