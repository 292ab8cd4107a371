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

bool same_end(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    const auto& left = reinterpret_cast<const sockaddr_in&>(a);
    const auto& right = reinterpret_cast<const sockaddr_in&>(b);
    return left.sin_port == right.sin_port && left.sin_addr.s_addr == right.sin_addr.s_addr;
  }
  if (a.ss_family != AF_INET6) return false;
  const auto& left = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& right = reinterpret_cast<const sockaddr_in6&>(b);
  return left.sin6_port == right.sin6_port && std::memcmp(&left.sin6_addr, &right.sin6_addr, sizeof(in6_addr)) == 0;
}

// The address of a connected socket's own end.
std::optional<sockaddr_storage> own_end(int fd) {
  sockaddr_storage self{};
  sockaddr_storage peer{};
  socklen_t size = sizeof(self);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&self), &size) != 0) return std::nullopt;
  size = sizeof(peer);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return std::nullopt;
  return self;
}

// A number of this process under which there was a connected socket when it was looked at.
struct Connection {
  int number = -1;
  sockaddr_storage self{};
};

Result<std::vector<Connection>> connections() {
  std::vector<Connection> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (const auto self = own_end(number)) found.push_back({.number = number, .self = *self});
  }
  if (error) return Status(Errc::kSystem, "/proc/self/fd cannot be read: " + error.message());
  return found;
}

// Nothing but what looks like Gloo's is duplicated: to close a duplicate of a file drops the locks (fcntl) that the
// program has on it. Looked at again when it is ours: another thread may have opened something else under the number.
Fd duplicate(const Connection& one) {
  Fd fd(::fcntl(one.number, F_DUPFD_CLOEXEC, 3));
  const auto self = own_end(fd.get());
  return self && same_end(*self, one.self) ? std::move(fd) : Fd();
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
      if (same_end(one.self, address->getSockaddr())) mine = GuardedFd(duplicate(one));
    }
    if (mine.valid()) continue;
    return Status(Errc::kSystem, "the connection of Gloo's pair with member " + std::to_string(member) +
                                     " was not found: it has ended, or this libgloo works in another way than those "
                                     "that distrun knows; choose another backend with --backend");
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
