// Stream sockets without authentication: addresses, connecting with a deadline, and the options that every one of ours
// has (non-blocking, close-on-exec, no delay, a silent peer noticed in about 5 s). Used by secure_socket and by the
// launcher's probes, which authenticate with probe_words.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/link_end.h"
#include "runtime/base/status.h"

namespace distrun::net {

struct Address {
  enum class Kind { kTcp, kUnix };
  Kind kind = Kind::kTcp;
  std::string host;  // kTcp: a name or a number, IPv6 without brackets. kUnix: the abstract name without '@'
  std::uint16_t port = 0;
  friend bool operator==(const Address&, const Address&) = default;
};

// "host:port", "[v6]:port" or "unix:@name"; kInvalidArgument naming the text otherwise.
Result<Address> parse_address(std::string_view text);
std::string to_string(const Address& address);

// Listens without accepting. Port 0 and an empty unix name are replaced by a free port and a random name in `address`.
// The host "*" means all addresses of this host, of IPv6 too where the kernel has it.
Result<Fd> listen_stream(Address& address);
Result<Fd> connect_stream(const Address& address, TimePoint deadline);
// For a loop: begins to connect to a numeric TCP address; when the descriptor becomes writable, finish_connect() says
// what has come of it. It has no deadline: where nothing answers, the system gives up after 31 s (Linux 6.5 and later:
// 35 s).
Result<Fd> begin_connect(const Address& address);
Status finish_connect(int fd);
// To the address of the other side of `fd`, a TCP connection. For who wants to know whether anything comes from there.
Result<Fd> begin_connect_to_peer_of(int fd);
int pending_error(int fd);  // takes it; 0: none
// Next connection of a listener: kOk with an invalid Fd when none waits (or one that gave up already).
Result<Fd> accept_stream(int listener);

// Blocks until `fd` is ready for `events` (poll's), or kTimeout. Signals do not end the wait.
Status wait_ready(int fd, short events, TimePoint deadline);

// TCP only: acknowledgements that stay away for 7 to 8 s end the connection, while idle as well as with data under
// way. The second part also ends a connection whose reader stands still with a full window, which bulk data to a slow
// rank legitimately does: allow_slow_reader() takes it back, the check of idle connections stays.
void expect_prompt_peer(int fd);
void allow_slow_reader(int fd);
// On a connection that has what expect_prompt_peer() gives it: after that time and about 2 s more, and not sooner.
// allow_slow_reader() stays in force.
void set_host_timeout(int fd, double seconds);

// How a connection ended from which a call got `error`, errno's; 0: end of file.
LinkEnd link_end_of(int error);
// The same in words: "Connection timed out".
std::string link_end_text(int error);

// The numeric address of the interface through which `remote` (TCP) is reached. Sends nothing.
Result<std::string> local_host_towards(const Address& remote);

// TCP, and the ends have different addresses.
bool is_between_hosts(int fd);
// Both ends have one address, as where a process connects to an interface of its own machine; a unix socket has none.
bool ends_share_address(int fd);
int unix_peer_pid(int fd);          // 0 when the kernel does not know
std::string local_host_of(int fd);  // this side's numeric address, "" for unix
std::string remote_text(int fd);    // the other side for a log line: "10.0.0.7:4242" or "a local process (pid 12)"
int poll_timeout_ms(
    TimePoint until);  // for poll and epoll_wait: rounded up, lest a wait end in a busy loop; 0 when past

}  // namespace distrun::net
