#include "runtime/backend/gloo/sockets.h"

#include <fcntl.h>
#include <gloo/transport/tcp/address.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace distrun::backend::gloo_plugin {
namespace {

// For connections within a host. Gloo writes as much at once as a connection takes, and holds the connection's lock
// during the write. The reading thread tries to get this lock again and again, on a core that others need. With this
// small buffer, 1 MiB takes two thirds of the time that it takes with the system's limit for local connections; 16 MiB
// and 64 MiB are faster too. Between hosts, a connection must hold as much data as the path, so it has no such limit.
constexpr int kHeldWithinHost = 256 << 10;

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  const auto& left = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& right = reinterpret_cast<const sockaddr_in6&>(b);
  return a.ss_family == AF_INET6 && std::memcmp(&left.sin6_addr, &right.sin6_addr, sizeof(in6_addr)) == 0;
}

bool same_end(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (!same_host(a, b)) return false;
  if (a.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_port == reinterpret_cast<const sockaddr_in&>(b).sin_port;
  }
  return reinterpret_cast<const sockaddr_in6&>(a).sin6_port == reinterpret_cast<const sockaddr_in6&>(b).sin6_port;
}

struct Ends {
  sockaddr_storage self{};
  sockaddr_storage peer{};
};

// The addresses of a connected socket; none if it is not connected.
std::optional<Ends> ends_of(int fd) {
  Ends ends;
  socklen_t size = sizeof(ends.self);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&ends.self), &size) != 0) return std::nullopt;
  size = sizeof(ends.peer);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&ends.peer), &size) != 0) return std::nullopt;
  return ends;
}

// A descriptor of this process that was a connected socket when it was checked.
struct Connection {
  int number = -1;
  Ends ends;
};

Result<std::vector<Connection>> connections() {
  std::vector<Connection> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (const auto ends = ends_of(number)) found.push_back({.number = number, .ends = *ends});
  }
  if (error) return Status(Errc::kSystem, "cannot read /proc/self/fd: " + error.message());
  return found;
}

// Duplicates only descriptors that look like Gloo's: closing a duplicate of a file would drop the program's locks
// (fcntl) on it. Checks the duplicate again, because another thread may have opened something else with this number.
Fd duplicate(const Connection& one) {
  Fd fd(::fcntl(one.number, F_DUPFD_CLOEXEC, 3));
  const auto ends = ends_of(fd.get());
  return ends && same_end(ends->self, one.ends.self) ? std::move(fd) : Fd();
}

}  // namespace

Result<Sockets> Sockets::of(::gloo::Context& context) {
  auto open = connections();
  if (!open.ok()) return open.status();
  Sockets sockets;
  sockets.members_.resize(static_cast<std::size_t>(context.size));
  for (int member = 0; member < context.size; ++member) {
    if (member == context.rank) continue;
    const auto* address = dynamic_cast<const ::gloo::transport::tcp::Address*>(&context.getPair(member)->address());
    GuardedFd& mine = sockets.members_[static_cast<std::size_t>(member)];
    for (const Connection& one : *open) {
      if (address == nullptr || mine.valid()) break;
      if (!same_end(one.ends.self, address->getSockaddr())) continue;
      mine = GuardedFd(duplicate(one));
      if (!mine.valid() || !same_host(one.ends.self, one.ends.peer)) continue;
      ::setsockopt(mine.get(), SOL_SOCKET, SO_SNDBUF, &kHeldWithinHost, sizeof(kHeldWithinHost));
    }
    if (mine.valid()) continue;
    return Status(Errc::kSystem, "the connection of Gloo's pair with member " + std::to_string(member) +
                                     " was not found: it has ended, or distrun does not know this version of libgloo. "
                                     "Choose another backend with --backend");
  }
  return sockets;
}

void Sockets::shut_down() const {
  for (const GuardedFd& fd : members_) {
    if (fd.valid()) ::shutdown(fd.get(), SHUT_RDWR);
  }
}

int Sockets::lost_member() const {
  for (std::size_t member = 0; member < members_.size(); ++member) {
    pollfd end{.fd = members_[member].get(), .events = POLLRDHUP, .revents = 0};
    if (members_[member].valid() && ::poll(&end, 1, 0) == 1) return static_cast<int>(member);
  }
  return -1;
}

}  // namespace distrun::backend::gloo_plugin
