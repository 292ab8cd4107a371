// connect_secure: the handshake of the initiator, blocking.
#include "runtime/net/secure/secure_socket.h"

#include <poll.h>

#include <algorithm>
#include <random>
#include <system_error>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_connector.h"

namespace distrun::net {
namespace {

// A listener may drop a peer without a verdict if many strangers connect, or if it waited for a stopped process. That
// is worth another attempt. A peer that is refused gets a reason instead.
constexpr int kAttempts = 8;
// seconds; doubles, with jitter, so that peers dropped together come back at different times
constexpr double kFirstPause = 0.01;

struct Attempt {
  Status status;
  bool dropped = false;  // the connection ended without a reason
  std::unique_ptr<SecureSocket> socket;
};

Attempt attempt(const Address& address, const JobKey& key, const Hello& hello, TimePoint deadline) {
  Attempt result;
  auto fd = connect_stream(address, deadline);
  if (!fd.ok()) {
    result.status = fd.status();
    return result;
  }
  SecureConnector connector(*std::move(fd), true, key, hello);
  for (;;) {
    auto socket = connector.progress();
    result.status = socket.status();
    result.dropped = connector.dropped();
    if (socket.ok()) result.socket = *std::move(socket);
    if (!result.status.ok() || result.socket != nullptr) return result;
    result.status = wait_ready(connector.fd(), POLLIN, deadline);
    if (!result.status.ok()) return result;
  }
}

// Backs off, because no event tells when the listener has room again.
void pause(int attempts, TimePoint deadline) {
  std::minstd_rand random(std::random_device{}());
  const double longest = kFirstPause * (1 << (attempts - 1));
  const double seconds = std::uniform_real_distribution(longest / 2, longest)(random);
  ::poll(nullptr, 0, poll_timeout_ms(std::min(deadline, deadline_after(seconds))));
}

}  // namespace

Result<std::unique_ptr<SecureSocket>> connect_secure(const std::string& address, const JobKey& key, const Hello& hello,
                                                     TimePoint deadline) {
  const auto parsed = parse_address(address);
  if (!parsed.ok()) return parsed.status();
  for (int i = 1;; ++i) {
    Attempt result = attempt(*parsed, key, hello, deadline);
    if (result.status.ok()) return std::move(result.socket);
    if (!result.dropped || i == kAttempts || Clock::now() >= deadline) {
      return result.status.with_context("connecting to " + address + " (" + hello.purpose + ")");
    }
    pause(i, deadline);
  }
}

}  // namespace distrun::net
