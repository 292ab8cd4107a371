#include "runtime/net/bytes/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <system_error>

namespace distrun::net {
namespace {

constexpr std::string_view kUnixPrefix = "unix:@";
constexpr std::string_view kEverywhere = "*";
constexpr std::size_t kMaxName = 100;  // sun_path holds 108
constexpr std::size_t kMaxHost = 255;

// The default time, in seconds, after which a connection to a silent peer ends.
constexpr double kHostTimeout = 5;
// Seconds between two probes of an idle connection, from a limit of 10 s on. The kernel's timers of 3 s and more are
// late by up to 0.25 s each, and the delays add up.
constexpr int kKeepInterval = 2;
constexpr int kMostProbes = 120;  // the kernel allows 127
constexpr int kSynRetries = 4;    // gives up after 1 + 2 + 4 + 8 + 16 s; since Linux 6.5 four waits of 1 s come first

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

SocketAddress unix_address(const std::string& name) {
  SocketAddress result;
  auto* un = reinterpret_cast<sockaddr_un*>(&result.storage);
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path + 1, name.data(), name.size());  // the leading zero byte makes the name abstract
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

std::string random_name() {
  std::array<unsigned char, 16> random{};
  std::array<char, 33> hex{};
  DISTRUN_CHECK(sodium_init() >= 0, "libsodium cannot be initialised");
  randombytes_buf(random.data(), random.size());
  sodium_bin2hex(hex.data(), hex.size(), random.data(), random.size());
  return std::string("distrun-") + hex.data();
}

Result<AddressList> resolve(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int rc = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (rc != 0) {
    return Status(Errc::kSystem, "the host name '" + address.host + "' cannot be resolved: " + gai_strerror(rc));
  }
  return AddressList(list, freeaddrinfo);
}

Result<Fd> new_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_status("a socket cannot be made", errno);
  return fd;
}

void set_option(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof(value)); }

Status set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return errno_status("fcntl failed", errno);
  return {};
}

// A TCP client may get, as its own port, the free port that it connects to. The socket is then connected to itself.
bool connected_to_itself(int fd) {
  SocketAddress local{.storage = {}, .size = sizeof(sockaddr_storage)};
  SocketAddress remote{.storage = {}, .size = sizeof(sockaddr_storage)};
  if (::getsockname(fd, local.get(), &local.size) != 0 || ::getpeername(fd, remote.get(), &remote.size) != 0) {
    return false;
  }
  return local.size == remote.size && std::memcmp(local.get(), remote.get(), local.size) == 0;
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
  }
  if (address.sa_family != AF_INET) return false;
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

// `syn_retries` 0 keeps the system's default.
Result<Fd> begin_connect(const addrinfo& info, int syn_retries) {
  auto fd = new_socket(info.ai_family);
  if (!fd.ok()) return fd;
  if (syn_retries > 0) set_option(fd->get(), IPPROTO_TCP, TCP_SYNCNT, syn_retries);
  const bool refused = ::connect(fd->get(), info.ai_addr, info.ai_addrlen) != 0;
  if (refused && errno == ENETUNREACH && is_loopback(*info.ai_addr)) {
    return errno_status("the loopback interface (lo) is down; `ip link set lo up` turns it on", errno);
  }
  if (refused && errno != EINPROGRESS && errno != EINTR) return errno_status("connecting failed", errno);
  return fd;
}

Result<Fd> connect_tcp(const addrinfo& info, TimePoint deadline) {
  auto fd = begin_connect(info, 0);  // `deadline` is the limit
  if (!fd.ok()) return fd;
  DISTRUN_RETURN_IF_ERROR(wait_ready(fd->get(), POLLOUT, deadline));
  DISTRUN_RETURN_IF_ERROR(finish_connect(fd->get()));
  return fd;
}

// On a non-blocking unix socket, connect() fails at once if the backlog is full, and poll() cannot wait for room. So
// this socket is blocking, and the deadline is its send timeout.
Result<Fd> connect_unix(const Address& address, TimePoint deadline) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_status("a socket cannot be made", errno);
  const SocketAddress target = unix_address(address.host);
  int rc = -1;
  do {
    const int ms = std::max(poll_timeout_ms(deadline), 1);
    const timeval limit{.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    rc = ::connect(fd.get(), target.get(), target.size);
  } while (rc != 0 && errno == EINTR && Clock::now() < deadline);
  if (rc != 0 && (errno == EAGAIN || errno == EINTR)) return Status(Errc::kTimeout, "connecting took too long");
  if (rc != 0) return errno_status("connecting failed", errno);
  DISTRUN_RETURN_IF_ERROR(set_nonblocking(fd.get()));
  return fd;
}

Result<Fd> listen_unix(Address& address) {
  auto fd = new_socket(AF_UNIX);
  if (!fd.ok()) return fd;
  if (address.host.empty()) address.host = random_name();
  const SocketAddress local = unix_address(address.host);
  if (::bind(fd->get(), local.get(), local.size) != 0 || ::listen(fd->get(), SOMAXCONN) != 0) {
    return errno_status("listening on " + to_string(address) + " failed", errno);
  }
  return fd;
}

std::uint16_t port_of(int fd) {
  SocketAddress local{.storage = {}, .size = sizeof(sockaddr_storage)};
  ::getsockname(fd, local.get(), &local.size);
  return ntohs(local.storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&local.storage)->sin6_port
                                                   : reinterpret_cast<sockaddr_in*>(&local.storage)->sin_port);
}

// Connections of an earlier listener on the same port may still be in TIME_WAIT. A port that the user chose must be
// usable although they exist.
void allow_again(int fd, const Address& address) {
  if (address.port != 0) set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
}

Status everywhere_failed(const Address& address) {
  const std::string port = address.port == 0 ? "" : ", port " + std::to_string(address.port) + ",";
  return errno_status("listening on all addresses" + port + " failed", errno);
}

// One IPv6 socket also accepts IPv4 connections. A kernel without IPv6 cannot create one, so IPv4 is the fallback.
Result<Fd> listen_everywhere(Address& address) {
  Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  SocketAddress any;
  if (fd.valid()) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    allow_again(fd.get(), address);
    auto* in = reinterpret_cast<sockaddr_in6*>(&any.storage);
    *in = {.sin6_family = AF_INET6, .sin6_port = htons(address.port), .sin6_addr = in6addr_any};
    any.size = sizeof(*in);
  }
  if (!fd.valid() || ::bind(fd.get(), any.get(), any.size) != 0) {
    fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    auto* in = reinterpret_cast<sockaddr_in*>(&any.storage);
    *in = {.sin_family = AF_INET, .sin_port = htons(address.port), .sin_addr = {.s_addr = htonl(INADDR_ANY)}};
    any.size = sizeof(*in);
    if (fd.valid()) allow_again(fd.get(), address);
    if (!fd.valid() || ::bind(fd.get(), any.get(), any.size) != 0) return everywhere_failed(address);
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) return everywhere_failed(address);
  address.port = port_of(fd.get());
  return fd;
}

Result<Fd> listen_tcp(Address& address) {
  if (address.host == kEverywhere) return listen_everywhere(address);
  auto list = resolve(address, AI_PASSIVE);
  if (!list.ok()) return list.status();
  Status error(Errc::kSystem, "the host name '" + address.host + "' has no address");
  for (const addrinfo* info = list->get(); info != nullptr; info = info->ai_next) {
    auto fd = new_socket(info->ai_family);
    if (!fd.ok()) return fd;
    if (info->ai_family == AF_INET6) set_option(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    allow_again(fd->get(), address);
    if (::bind(fd->get(), info->ai_addr, info->ai_addrlen) == 0 && ::listen(fd->get(), SOMAXCONN) == 0) {
      address.port = port_of(fd->get());
      return fd;
    }
    error = errno_status("listening on " + to_string(address) + " failed", errno);
  }
  return error;
}

// Returns the numeric address and port of either end. Empty if it is not TCP.
Address numeric(const SocketAddress& socket_address) {
  Address address;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (socket_address.storage.ss_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&socket_address.storage);
    ::inet_ntop(AF_INET, &in->sin_addr, text.data(), text.size());
    address.port = ntohs(in->sin_port);
  } else if (socket_address.storage.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&socket_address.storage);
    ::inet_ntop(AF_INET6, &in->sin6_addr, text.data(), text.size());
    address.port = ntohs(in->sin6_port);
  }
  address.host = text.data();
  return address;
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  const Status bad(Errc::kInvalidArgument, "'" + std::string(text.substr(0, 200)) +
                                               "' is not an address: expected host:port, [IPv6]:port or unix:@name");
  const auto printable = [](std::string_view part) {
    return std::all_of(part.begin(), part.end(), [](char c) { return c > ' ' && c < 0x7f; });
  };
  Address address;
  if (text.starts_with(kUnixPrefix)) {
    address.kind = Address::Kind::kUnix;
    address.host = text.substr(kUnixPrefix.size());
    return address.host.size() <= kMaxName && printable(address.host) ? Result<Address>(address) : bad;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  // An IPv6 number contains colons. Only the brackets separate them from the colon before the port.
  if (host.find_first_of("[]") != std::string_view::npos || (host.find(':') != std::string_view::npos) != bracketed) {
    return bad;
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (host.empty() || host.size() > kMaxHost || !printable(host) || port.empty() || error != std::errc{} ||
      end != port.data() + port.size()) {
    return bad;
  }
  address.host = host;
  return address;
}

std::string to_string(const Address& address) {
  if (address.kind == Address::Kind::kUnix) return std::string(kUnixPrefix) + address.host;
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Result<Fd> listen_stream(Address& address) {
  return address.kind == Address::Kind::kUnix ? listen_unix(address) : listen_tcp(address);
}

Result<Fd> connect_stream(const Address& address, TimePoint deadline) {
  if (address.kind == Address::Kind::kUnix) return connect_unix(address, deadline);
  auto list = resolve(address, 0);
  if (!list.ok()) return list.status();
  int left = 0;
  for (const addrinfo* info = list->get(); info != nullptr; info = info->ai_next) ++left;
  Status error(Errc::kSystem, "the host name '" + address.host + "' has no address");
  for (const addrinfo* info = list->get(); info != nullptr; info = info->ai_next) {
    // Each address of a name gets an equal share of the time, so that an unreachable one does not use all of it.
    const TimePoint now = Clock::now();
    auto fd = connect_tcp(*info, now + (deadline - now) / left--);
    if (fd.ok()) return fd;
    error = fd.status();
  }
  return error;
}

Result<Fd> begin_connect(const Address& address) {
  auto list = resolve(address, AI_NUMERICHOST);
  if (!list.ok()) return list.status();
  return begin_connect(**list, kSynRetries);
}

int pending_error(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

Status finish_connect(int fd) {
  int error = pending_error(fd);
  if (error == 0 && connected_to_itself(fd)) error = ECONNREFUSED;
  if (error != 0) {
    ErrorInfo info = errno_status("connecting failed", error).info();
    info.link = link_end_of(error);
    return Status(std::move(info));
  }
  expect_prompt_peer(fd);
  return {};
}

Result<Fd> accept_stream(int listener) {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) {
    expect_prompt_peer(fd.get());
    return fd;
  }
  const bool short_of_memory = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (short_of_memory || errno == EINVAL || errno == EBADF) return errno_status("accepting a connection failed", errno);
  return fd;  // no connection waits, or the peer has already gone (ECONNABORTED and the network errors of accept(2))
}

Status wait_ready(int fd, short events, TimePoint deadline) {
  for (;;) {
    pollfd item{.fd = fd, .events = events, .revents = 0};
    const int rc = ::poll(&item, 1, poll_timeout_ms(deadline));
    if (rc > 0) return {};
    if (rc < 0 && errno != EINTR) return errno_status("poll failed", errno);
    if (Clock::now() >= deadline) return {Errc::kTimeout, "the deadline passed"};
  }
}

void expect_prompt_peer(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain == AF_UNIX) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1);  // set_host_timeout() sets it only if it is on
  set_host_timeout(fd, kHostTimeout);
}

void set_host_timeout(int fd, double seconds) {
  int limit = 0;
  socklen_t size = sizeof(limit);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size) != 0) return;  // a unix socket
  const int total = std::max(2, static_cast<int>(std::ceil(seconds)));
  const int interval = total < 5 * kKeepInterval ? 1 : std::max(kKeepInterval, (total + kMostProbes - 1) / kMostProbes);
  const int count = total / interval - 1;
  // An idle connection ends `total` seconds after the last answer: the first probe, and one interval for each of them.
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, total - count * interval);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, count);
  if (limit > 0) set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, total * 1000);
}

void allow_slow_reader(int fd) { set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0); }

LinkEnd link_end_of(int error) {
  switch (error) {
    case 0:
      return LinkEnd::kClosed;
    case ECONNRESET:
    case EPIPE:
      return LinkEnd::kReset;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
      return LinkEnd::kSilent;
    default:
      return LinkEnd::kUnknown;
  }
}

std::string link_end_text(int error) {
  return error == 0 ? "closed by the other side" : std::generic_category().message(error);
}

int unix_peer_pid(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return 0;
  return credentials.pid;
}

std::string local_host_of(int fd) {
  SocketAddress local{.storage = {}, .size = sizeof(sockaddr_storage)};
  if (::getsockname(fd, local.get(), &local.size) != 0) return {};
  return numeric(local).host;
}

Result<std::string> local_host_towards(const Address& remote) {
  auto list = resolve(remote, 0);
  if (!list.ok()) return list.status();
  Status error(Errc::kSystem, "the host name '" + remote.host + "' has no address");
  for (const addrinfo* info = list->get(); info != nullptr; info = info->ai_next) {
    // connect() on a datagram socket only looks up the route.
    const Fd fd(::socket(info->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && ::connect(fd.get(), info->ai_addr, info->ai_addrlen) == 0) return local_host_of(fd.get());
    error = errno_status("no interface leads to " + to_string(remote), errno);
  }
  return error;
}

Result<Fd> begin_connect_to_peer_of(int fd) {
  SocketAddress remote{.storage = {}, .size = sizeof(sockaddr_storage)};
  if (::getpeername(fd, remote.get(), &remote.size) != 0) return errno_status("getpeername failed", errno);
  const Address address = numeric(remote);
  if (address.host.empty()) return Status(Errc::kSystem, "this is not a TCP connection");
  return begin_connect(address);
}

bool is_between_hosts(int fd) {
  const std::string own = local_host_of(fd);
  return !own.empty() && !ends_share_address(fd);
}

bool ends_share_address(int fd) {
  SocketAddress remote{.storage = {}, .size = sizeof(sockaddr_storage)};
  if (::getpeername(fd, remote.get(), &remote.size) != 0) return false;
  const std::string host = numeric(remote).host;
  return !host.empty() && host == local_host_of(fd);
}

std::string remote_text(int fd) {
  SocketAddress remote{.storage = {}, .size = sizeof(sockaddr_storage)};
  if (::getpeername(fd, remote.get(), &remote.size) != 0) return "a process that has ended";
  if (remote.storage.ss_family == AF_UNIX) {
    return "a local process (pid " + std::to_string(unix_peer_pid(fd)) + ")";
  }
  return to_string(numeric(remote));
}

int poll_timeout_ms(TimePoint until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, INT_MAX));
}

}  // namespace distrun::net
