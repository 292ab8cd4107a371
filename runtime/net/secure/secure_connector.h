// The handshake of the connecting side without blocking: connect_secure() for an event loop. One attempt on one socket.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/secure/handshake.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {

class SecureConnector {
 public:
  // `fd` comes from connect_stream(), or from begin_connect() while it is still connecting (`connected` is false).
  SecureConnector(Fd fd, bool connected, const JobKey& key, const Hello& hello);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Sends and receives what is possible. Null means not finished: call again when fd() is writable, or readable if
  // connected(). An error ends the attempt.
  Result<std::unique_ptr<SecureSocket>> progress();
  [[nodiscard]] bool connected() const { return connected_; }
  // After an error: the other side closed the connection without a reason, as a listener without room does. Another
  // attempt may succeed.
  [[nodiscard]] bool dropped() const { return dropped_; }

 private:
  Status shake_hands(bool& waits);

  GuardedFd fd_;
  Handshake handshake_;
  bool connected_;
  bool dropped_ = false;
  Status send_error_;
  std::vector<std::byte> received_;  // bytes received so far, of handshake_.wanted()
};

}  // namespace distrun::net
