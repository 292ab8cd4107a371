#include "runtime/backend/gloo/sockets.h"

#include <fcntl.h>
#include <gloo/transport/tcp/address.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

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

// A connected socket with its own end's address.
struct Connection {
  Fd fd;
  sockaddr_storage self{};
};

// Duplicates of all sockets of this process that are connected by TCP.
Result<std::vector<Connection>> connections() {
  std::vector<Connection> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    // Looked at only once it is ours: another thread may close the number and open something else under it.
    Connection one{.fd = Fd(::fcntl(number, F_DUPFD_CLOEXEC, 3))};
    socklen_t size = sizeof(one.self);
    if (!one.fd.valid() || ::getsockname(one.fd.get(), reinterpret_cast<sockaddr*>(&one.self), &size) != 0) continue;
    sockaddr_storage peer{};
    size = sizeof(peer);
    if (::getpeername(one.fd.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0) found.push_back(std::move(one));
  }
  if (error) return Status(Errc::kSystem, "/proc/self/fd cannot be read: " + error.message());
  return found;
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
    for (Connection& one : *open) {
      if (address == nullptr || mine.valid()) break;
      if (one.fd.valid() && same_end(one.self, address->getSockaddr())) mine = GuardedFd(std::move(one.fd));
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
