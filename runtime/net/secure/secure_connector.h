// The connecting side's handshake, without blocking: connect_secure() for a loop. One attempt on one socket.
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
  // `fd` comes from connect_stream(), or from begin_connect() and is still on its way (`connected` is false).
  SecureConnector(Fd fd, bool connected, const JobKey& key, const Hello& hello);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Moves what can be moved. Null: not yet; call again when fd() is writable, or, once connected(), when it is
  // readable. An error ends the attempt.
  Result<std::unique_ptr<SecureSocket>> progress();
  [[nodiscard]] bool connected() const { return connected_; }
  // After an error: the other side closed the connection and gave no reason, as a listener does that has no room.
  // Another attempt may do better.
  [[nodiscard]] bool dropped() const { return dropped_; }

 private:
  Status shake_hands(bool& waits);

  GuardedFd fd_;
  Handshake handshake_;
  bool connected_;
  bool dropped_ = false;
  Status send_error_;
  std::vector<std::byte> received_;  // of handshake_.wanted()
};

}  // namespace distrun::net
