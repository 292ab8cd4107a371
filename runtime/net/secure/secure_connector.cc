#include "runtime/net/secure/secure_connector.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_stream.h"

namespace distrun::net {
namespace {

Status closed_by_peer(int error) {
  return errno_status("the other side closed the connection in the handshake", error);
}

// A new socket has room for these few hundred bytes.
Status send_whole(int fd, const std::vector<std::byte>& bytes) {
  if (bytes.empty()) return {};
  const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return n == static_cast<ssize_t>(bytes.size()) ? Status() : closed_by_peer(n < 0 ? errno : ENOBUFS);
}

}  // namespace

SecureConnector::SecureConnector(Fd fd, bool connected, const JobKey& key, const Hello& hello)
    : fd_(std::move(fd)), handshake_(NoiseHandshake::Role::kInitiator, key, hello), connected_(connected) {}

Result<std::unique_ptr<SecureSocket>> SecureConnector::progress() {
  if (!connected_) {
    pollfd item{.fd = fd_.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&item, 1, 0) <= 0) return std::unique_ptr<SecureSocket>();
    DISTRUN_RETURN_IF_ERROR(finish_connect(fd_.get()));
    connected_ = true;
  }
  bool waits = false;
  DISTRUN_RETURN_IF_ERROR(shake_hands(waits));
  if (waits) return std::unique_ptr<SecureSocket>();
  Hello peer = handshake_.peer();
  if (const int pid = unix_peer_pid(fd_.get()); pid > 0) peer.pid = pid;
  return std::unique_ptr<SecureSocket>(std::make_unique<SecureStream>(fd_.release(), handshake_.take_session(),
                                                                      std::move(peer), std::vector<std::byte>{}));
}

// Reads exactly the bytes that the handshake wants. The next byte could be the first byte of bulk data.
Status SecureConnector::shake_hands(bool& waits) {
  std::array<std::byte, kMaxHandshakeMessage> buffer;
  while (handshake_.state() == Handshake::State::kRunning) {
    // Read even if sending failed: the other side may have sent the reason why it closed.
    if (const Status sent = send_whole(fd_.get(), handshake_.take_output()); !sent.ok()) send_error_ = sent;
    const std::size_t missing = handshake_.wanted() - received_.size();
    const ssize_t n = ::recv(fd_.get(), buffer.data(), std::min(missing, buffer.size()), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN && send_error_.ok()) {
      waits = true;
      return {};
    }
    if (n <= 0) {
      dropped_ = true;
      return send_error_.ok() ? closed_by_peer(n == 0 ? ECONNRESET : errno) : send_error_;
    }
    received_.insert(received_.end(), buffer.begin(), buffer.begin() + n);
    if (received_.size() == handshake_.wanted()) {
      DISTRUN_RETURN_IF_ERROR(handshake_.feed(std::exchange(received_, {})));
    }
  }
  return {};
}

}  // namespace distrun::net
