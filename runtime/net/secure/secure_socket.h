// A non-blocking stream socket (TCP or unix). Both ends prove that they hold the job's key before any other byte is
// parsed (Noise_NNpsk0_25519_ChaChaPoly_SHA256; docs/internals/wire.md). Control frames are always encrypted. After the
// authenticated connect, the owner decides how bulk data is sent. One thread at a time owns and uses it (the token
// holder, or the launcher's loop).
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
// purpose. Each text has at most 128 bytes.
struct Hello {
  std::string purpose;  // "store", "control", "tcp:<group>", "host"
  std::string job_id;
  // World ranks; -1 for the launcher.
  int from = -1;  // the connecting side
  int to = -1;    // the accepting side; checked
  // Each side sends it encrypted in the handshake. If they differ, the result is a kProtocol error that names both
  // versions. Empty means the version of this build.
  std::string version;
  // The process id that the other side sent, or, on a unix socket, the one from the kernel (SO_PEERCRED). 0 means the
  // id of this process.
  int pid = 0;
};

class SecureSocket {
 public:
  virtual ~SecureSocket() = default;
  [[nodiscard]] virtual int fd() const = 0;
  [[nodiscard]] virtual const Hello& peer() const = 0;  // the Hello of the other side, verified

  // Control frames: whole messages, encrypted. send_frame queues a message. receive_frame returns false if no frame is
  // complete. Once the peer is gone (end of file, reset, bad tag), both return an error, again and again.
  virtual Status send_frame(std::span<const std::byte> frame) = 0;
  virtual Result<bool> receive_frame(std::vector<std::byte>& out) = 0;
  virtual Status flush() = 0;  // writes queued bytes without blocking
  [[nodiscard]] virtual bool wants_write() const = 0;
  [[nodiscard]] virtual std::size_t queued() const = 0;  // bytes that flush() still has to write

  // The number of the record that has arrived in part; 0 if there is none.
  [[nodiscard]] virtual std::uint64_t begun() const = 0;
  // Tells the socket that its owner has found the connection ended. Returns the error that both directions report from
  // now on.
  virtual Status give_up(LinkEnd end, const std::string& how) = 0;

  // Blocking variants for the set-up, with a deadline.
  virtual Status send_frame_blocking(std::span<const std::byte> frame, TimePoint deadline) = 0;
  virtual Result<std::vector<std::byte>> receive_frame_blocking(TimePoint deadline) = 0;

  // Gives up framing. The caller owns the authenticated, non-blocking descriptor and moves bulk bytes on it, in the
  // clear or in its own records. A slow reader no longer ends the connection. This is safe right after connecting and
  // accepting, on both sides. Later it is safe only if both sides know that no frame is in flight. An error if frame
  // bytes are left in either direction.
  virtual Result<Fd> release_plain() = 0;
  // Keys for the record layer of the bulk data (record_cipher.h).
  [[nodiscard]] virtual const ExportedKeys& exported_keys() const = 0;
};

// Client side: connects, authenticates, checks the version. `address` is "host:port", "[v6]:port" or "unix:@abstract".
Result<std::unique_ptr<SecureSocket>> connect_secure(const std::string& address, const JobKey& key, const Hello& hello,
                                                     TimePoint deadline);

// Server side, event-driven. It holds at most 128 peers that are not authenticated yet, and at most 2 KiB for each. It
// closes such a peer, a stranger, 5 s after accept. When the 129th peer comes, the listener drops the oldest peer that
// has been silent for 100 ms. Until there is one, new peers wait in the kernel. Strangers cause at most one log line
// per second and never disturb the owner.
class SecureListener {
 public:
  // Returns the reason for a refusal, which the peer will report, or an empty string to welcome the peer.
  using AcceptFunction = std::function<std::string(const Hello&)>;
  using PeerFunction = std::function<void(std::unique_ptr<SecureSocket>)>;

  virtual ~SecureListener() = default;
  [[nodiscard]] virtual const std::string& address() const = 0;  // for connect_secure
  // Readable whenever progress() has work to do, which includes closing a silent stranger. One descriptor (an epoll
  // set) for the whole life of the listener; watch it for reading.
  [[nodiscard]] virtual int fd() const = 0;
  // Accepts peers and advances handshakes without blocking. Calls `on_peer` with each proved peer whose Hello (purpose,
  // job, rank) `accept` welcomes. Without `accept`, all peers of this job are welcome. Neither function may destroy the
  // listener.
  virtual void progress(TimePoint now, const AcceptFunction& accept, const PeerFunction& on_peer) = 0;
  // Each of `places` (make_room() in open_files.h) makes room for one connection: the listener closes one when it
  // accepts one. So other descriptors that the process opens until then cannot keep peers out.
  virtual void reserve(std::vector<Fd> places) = 0;
  // Blocks until one peer has come, or until the deadline. If connections cannot be accepted for 2 s because
  // descriptors or memory have run out, returns kSystem with the cure.
  virtual Result<std::unique_ptr<SecureSocket>> accept_blocking(const AcceptFunction& accept, TimePoint deadline) = 0;
};

// accept_blocking() for a peer that may die before it connects: calls `news` about every 0.2 s, and an error of `news`
// ends the wait.
Result<std::unique_ptr<SecureSocket>> accept_or_news(SecureListener& listener,
                                                     const SecureListener::AcceptFunction& accept, TimePoint deadline,
                                                     const std::function<Status()>& news);

// `bind_address`: "127.0.0.1:0", "[::1]:0", "*:0" (all addresses), "unix:@abstract", or "unix:@" for a random abstract
// name. `self` describes this side. A peer must have its job_id and version, and must want to reach its `from`. If
// `purpose` is not empty, a peer must have the same one; otherwise `accept` decides. `log` is optional and must outlive
// the listener. It logs strangers, and it logs once when descriptors run out.
Result<std::unique_ptr<SecureListener>> listen_secure(const std::string& bind_address, const JobKey& key,
                                                      const Hello& self, const Log* log = nullptr);

// The same for a socket that already listens (listen_stream). For an owner that must publish its port before it gets
// the key: peers that have connected before are served now. `address` is the address from listen_stream.
Result<std::unique_ptr<SecureListener>> listen_secure_on(Fd listening, const std::string& address, const JobKey& key,
                                                         const Hello& self, const Log* log = nullptr);

}  // namespace distrun::net
