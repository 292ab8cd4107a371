#include "runtime/net/host/host_mail.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/bytes/wire.h"

namespace distrun::net {
namespace {

constexpr std::size_t kMaxPacket = std::size_t{16} << 10;
constexpr std::size_t kMaxWaiting = 4096;
constexpr int kNumCodes = static_cast<int>(Errc::kInternal) + 1;

struct alignas(cmsghdr) Control {
  std::array<std::byte, CMSG_SPACE(kMaxPassedFds * sizeof(int))> bytes;
};

// Returns false if the deadline passed.
Result<bool> wait_for(int socket, short events, TimePoint deadline) {
  pollfd entry{.fd = socket, .events = events, .revents = 0};
  while (Clock::now() < deadline) {
    const int ready = ::poll(&entry, 1, poll_timeout_ms(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return errno_status("poll", errno);
  }
  return false;
}

std::vector<Fd> descriptors_in(msghdr& message) {
  std::vector<Fd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

Status lost(int rank) {
  ErrorInfo info;
  info.code = Errc::kRankLost;
  info.message = "rank " + std::to_string(rank) + " of this host ended while ranks shared memory";
  info.ranks = {rank};
  return Status(std::move(info));
}

template <class V>
void fields(V& v, Ref<V, ErrorInfo> error) {
  v.one_of(error.code, kNumCodes);
  if (error.code == Errc::kOk) return;
  v.cut_text(error.message, 2000).numbers(error.ranks, 1 << 10).text(error.host, 1 << 10);
}

template <class V>
void fields(V& v, Ref<V, Packet> packet) {
  v.one_of(packet.kind, static_cast<int>(Packet::Kind::kVerdict) + 1)(packet.from).text(packet.tag, kMaxPacket);
  ErrorInfo error = packet.error.ok() ? ErrorInfo{.code = Errc::kOk} : packet.error.info();
  fields(v, error);
  if constexpr (V::kReads) packet.error = error.code == Errc::kOk ? Status() : Status(std::move(error));
  v.blob(packet.body, kMaxPacket);
}

}  // namespace

Status send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds, TimePoint deadline) {
  DISTRUN_CHECK(!bytes.empty() && fds.size() <= kMaxPassedFds, "descriptors travel with bytes, a bounded number");
  iovec vec{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &vec;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(bytes.size())) return {};
    if (sent >= 0) return {Errc::kInternal, "a packet between ranks of this host was cut short"};
    if (errno != EAGAIN && errno != EINTR) return errno_status("sending descriptors to a rank of this host", errno);
    auto ready = wait_for(socket, POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return {Errc::kTimeout, "a rank of this host did not take the descriptors in time"};
  }
}

Result<WithFds> receive_with_fds(int socket, std::size_t limit, TimePoint deadline) {
  WithFds got;
  got.bytes.resize(limit);
  for (;;) {
    iovec vec{.iov_base = got.bytes.data(), .iov_len = limit};
    Control control;
    msghdr message{};
    message.msg_iov = &vec;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (count >= 0) {
      got.fds = descriptors_in(message);
      got.bytes.resize(static_cast<std::size_t>(count));
      if ((message.msg_flags & MSG_CTRUNC) != 0)
        return Status(Errc::kSystem,
                      "this process cannot open the descriptors of a rank of this host. Raise ulimit -n");
      if ((message.msg_flags & MSG_TRUNC) != 0) return Status(Errc::kProtocol, "a packet is longer than announced");
      return got;
    }
    if (errno != EAGAIN && errno != EINTR) return errno_status("receiving from a rank of this host", errno);
    auto ready = wait_for(socket, POLLIN, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(Errc::kTimeout, "a rank of this host did not send its descriptors in time");
  }
}

Status HostMail::send(const Watched& to, const Packet& packet, std::span<const int> fds, TimePoint deadline) {
  WireWriter out;
  fields(out, packet);
  DISTRUN_CHECK(out.size() <= kMaxPacket, "packets between ranks of a host are small");
  Status sent = send_with_fds(to.mail_box, out.view(), fds, deadline);
  pollfd end{.fd = to.mail_box, .events = POLLRDHUP, .revents = 0};
  if (!sent.ok() && ::poll(&end, 1, 0) == 1) return lost(to.rank);
  return sent;
}

Status HostMail::take_all() {
  while (!at_end_) {
    auto got = receive_with_fds(inbox_, kMaxPacket, TimePoint{});
    if (!got.ok()) return got.status().code() == Errc::kTimeout ? Status() : got.status();
    if (got->bytes.empty()) {  // all other ranks have closed their outer ends
      at_end_ = true;
      break;
    }
    WireReader in(got->bytes);
    Packet packet;
    fields(in, packet);
    packet.fds = std::move(got->fds);
    DISTRUN_RETURN_IF_ERROR(in.finish("a packet from a rank of this host"));
    if (waiting_.size() == kMaxWaiting) return {Errc::kProtocol, "too many packets from ranks of this host"};
    waiting_.push_back(std::move(packet));
  }
  return {};
}

Result<Packet> HostMail::receive(const Wanted& wanted, std::span<const Watched> watched, TimePoint deadline) {
  auto packet = receive_even_error(wanted, watched, deadline);
  if (packet.ok() && !packet->error.ok()) return packet->error;
  return packet;
}

Result<Packet> HostMail::receive_even_error(const Wanted& wanted, std::span<const Watched> watched,
                                            TimePoint deadline) {
  std::vector<pollfd> fds;
  for (const Watched& peer : watched) fds.push_back({.fd = peer.mail_box, .events = POLLRDHUP, .revents = 0});
  fds.push_back({.fd = inbox_, .events = POLLIN, .revents = 0});
  for (bool first = true;; first = false) {
    const bool late = Clock::now() >= deadline;
    // Look for deaths before reading the mail, so that a packet that a rank sent before it died is always taken first.
    // The first poll does not wait, because an earlier call may already have read the packet.
    if (at_end_) fds.back().fd = -1;
    const int ready = ::poll(fds.data(), fds.size(), first || late ? 0 : poll_timeout_ms(deadline));
    if (ready < 0 && errno != EINTR) return errno_status("poll", errno);
    DISTRUN_RETURN_IF_ERROR(take_all());
    const auto match = std::find_if(waiting_.begin(), waiting_.end(), [&](const Packet& packet) {
      return packet.tag == wanted.tag && packet.from == wanted.from &&
             (packet.kind == wanted.kind || !packet.error.ok());
    });
    if (match != waiting_.end()) {
      Packet packet = std::move(*match);
      waiting_.erase(match);
      return packet;
    }
    for (std::size_t i = 0; ready > 0 && i < watched.size(); ++i)
      if (fds[i].revents != 0) return lost(watched[i].rank);
    if (late)
      return Status(Errc::kTimeout, "rank " + std::to_string(wanted.from) + " of this host did not answer in time (" +
                                        std::string(wanted.tag) + ")");
  }
}

}  // namespace distrun::net
