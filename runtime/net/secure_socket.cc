// connect_secure: the initiator's side of the handshake, blocking.
#include "runtime/net/secure_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>

#include "runtime/net/handshake.h"
#include "runtime/net/secure_stream.h"
#include "runtime/net/socket.h"

namespace distrun::net {
namespace {

// A listener under a flood of strangers, or one that waited for a stopped process, may drop a peer without a verdict;
// that is worth another attempt. Whoever is not wanted is told so.
constexpr int kAttempts = 8;
constexpr double kFirstPause = 0.01;  // seconds; doubles, with jitter: those who were dropped together come apart

struct Attempt {
  Status status;
  bool dropped = false;  // the connection ended without a reason given
  std::unique_ptr<SecureSocket> socket;
};

// Writes all of `bytes`; sets `dropped` when the other side has closed.
Status write_all(int fd, std::span<const std::byte> bytes, TimePoint deadline, bool& dropped) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      DISTRUN_RETURN_IF_ERROR(wait_ready(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      dropped = true;
      return errno_status("the other side went away in the handshake", errno);
    }
  }
  return {};
}

// Reads exactly bytes.size() bytes: not one byte more, which could be the first of the bulk data after a handshake.
Status read_all(int fd, std::span<std::byte> bytes, TimePoint deadline, bool& dropped) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      DISTRUN_RETURN_IF_ERROR(wait_ready(fd, POLLIN, deadline));
    } else if (n == 0 || errno != EINTR) {
      dropped = true;
      return errno_status("the other side went away in the handshake", n == 0 ? ECONNRESET : errno);
    }
  }
  return {};
}

Status shake_hands(int fd, Handshake& handshake, TimePoint deadline, bool& dropped) {
  std::vector<std::byte> buffer;
  while (handshake.state() == Handshake::State::kRunning) {
    bool ended = false;
    Status status = write_all(fd, handshake.take_output(), deadline, ended);
    buffer.resize(handshake.wanted());
    // Read even if writing failed: the other side may have said why it closed.
    if (status.ok() || ended) {
      bool end_of_reading = false;
      const Status read = read_all(fd, buffer, deadline, end_of_reading);
      if (!read.ok()) {
        dropped = ended || end_of_reading;
        return status.ok() ? read : status;
      }
      status = handshake.feed(buffer);
    }
    DISTRUN_RETURN_IF_ERROR(status);
  }
  return {};
}

Attempt attempt(const Address& address, const JobKey& key, const Hello& hello, TimePoint deadline) {
  Attempt result;
  auto fd = connect_stream(address, deadline);
  if (!fd.ok()) {
    result.status = fd.status();
    return result;
  }
  Handshake handshake(NoiseHandshake::Role::kInitiator, key, hello);
  result.status = shake_hands(fd->get(), handshake, deadline, result.dropped);
  if (!result.status.ok()) return result;
  Hello peer = handshake.peer();
  if (const int pid = address.kind == Address::Kind::kUnix ? unix_peer_pid(fd->get()) : 0; pid > 0) peer.pid = pid;
  result.socket = std::make_unique<SecureStream>(*std::move(fd), handshake.take_session(), std::move(peer),
                                                 std::vector<std::byte>{});
  return result;
}

// Nothing tells when the listener has room again.
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
