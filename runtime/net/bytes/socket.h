// Stream sockets without authentication: addresses and connecting with a deadline. Every socket is non-blocking and
// close-on-exec; TCP sockets also set TCP_NODELAY and notice a silent peer within 8 s. secure_socket uses this, and so
// do the launcher's probes, which authenticate with probe_words.h.
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

// Parses "host:port", "[v6]:port" or "unix:@name". Otherwise kInvalidArgument with the text in its message.
Result<Address> parse_address(std::string_view text);
std::string to_string(const Address& address);

// Listens without accepting. In `address`, port 0 becomes the free port that was chosen, and an empty unix name becomes
// a random one. The host "*" means all addresses of this host, including IPv6 if the kernel has it.
Result<Fd> listen_stream(Address& address);
Result<Fd> connect_stream(const Address& address, TimePoint deadline);
// Begins to connect to a numeric TCP address, for use in an event loop. When the descriptor becomes writable, call
// finish_connect() for the result. There is no deadline. If the peer does not answer, the system gives up after 31 s
// (Linux 6.5 and later: 35 s).
Result<Fd> begin_connect(const Address& address);
Status finish_connect(int fd);
// Begins to connect to the peer address of `fd`, a TCP connection. Use it to find out whether that host answers.
Result<Fd> begin_connect_to_peer_of(int fd);
int pending_error(int fd);  // reads and clears it; 0 if there is none
// Returns the next connection of a listener. It is kOk with an invalid Fd if none waits, or if the peer has already
// given up.
Result<Fd> accept_stream(int listener);

// Blocks until `fd` is ready for `events` (of poll). kTimeout at the deadline. Signals do not end the wait.
Status wait_ready(int fd, short events, TimePoint deadline);

// TCP only. Missing acknowledgements for 7 to 8 s end the connection, both when it is idle and when data is in flight.
// The check for data in flight also ends a connection whose reader is stopped with a full window. Bulk data to a slow
// rank may legitimately be in that state. allow_slow_reader() turns this check off and keeps the check of idle
// connections.
void expect_prompt_peer(int fd);
void allow_slow_reader(int fd);
// Changes the limits of expect_prompt_peer(), which must have been called: the connection ends after `seconds`,
// counted from the last thing that was heard. allow_slow_reader() stays in effect.
void set_host_timeout(int fd, double seconds);

// How a connection ended, from the errno of the call that failed. 0 means end of file.
LinkEnd link_end_of(int error);
// The same in words, for instance "Connection timed out".
std::string link_end_text(int error);

// The numeric address of the local interface through which `remote` (TCP) is reached. Sends nothing.
Result<std::string> local_host_towards(const Address& remote);

// True for a TCP connection whose ends have different addresses.
bool is_between_hosts(int fd);
// True if both ends have the same address, for instance if a process connects to a local interface. False for a unix
// socket.
bool ends_share_address(int fd);
int unix_peer_pid(int fd);          // 0 if the kernel does not know it
std::string local_host_of(int fd);  // the numeric address of this side; "" for a unix socket
std::string remote_text(int fd);    // names the other side in a log line: "10.0.0.7:4242" or "a local process (pid 12)"
// The timeout for poll and epoll_wait. Rounded up, so that a wait does not end in a busy loop; 0 if `until` has passed.
int poll_timeout_ms(TimePoint until);

}  // namespace distrun::net
