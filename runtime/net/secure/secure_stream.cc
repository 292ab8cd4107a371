#include "runtime/net/secure/secure_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "runtime/net/bytes/socket.h"

namespace distrun::net {
namespace {

// If more bytes than this have been sent, they are erased from the queue even though it is not empty.
constexpr std::size_t kCompactAbove = std::size_t{1} << 20;

}  // namespace

SecureStream::SecureStream(Fd fd, NoiseSession session, Hello peer, std::vector<std::byte> unsent)
    : fd_(GuardedFd(std::move(fd))),
      peer_(std::move(peer)),
      sealer_(std::move(session.send)),
      opener_(std::move(session.receive)),
      exported_(session.exported),
      queue_(std::move(unsent)) {
  name_ = (peer_.from < 0 ? std::string("the launcher") : "rank " + std::to_string(peer_.from)) + " at " +
          remote_text(fd_.get()) + " (" + peer_.purpose + ")";
}

Status SecureStream::gone(int error) const { return gone(link_end_of(error), link_end_text(error)); }

Status SecureStream::gone(LinkEnd end, const std::string& how) const {
  ErrorInfo info{
      .code = Errc::kRankLost, .message = "the connection to " + name_ + " ended: " + how, .cause = how, .link = end};
  if (peer_.from >= 0) info.ranks.push_back(peer_.from);
  info.usable = false;
  return Status(std::move(info));
}

Status SecureStream::broken(const Status& why) const {
  ErrorInfo info = why.info();
  info.cause = info.message;
  info.message = "the connection to " + name_ + ": " + info.message;
  if (peer_.from >= 0) info.ranks.push_back(peer_.from);
  return Status(std::move(info));
}

Status SecureStream::send_frame(std::span<const std::byte> frame) {
  if (frame.size() > kMaxFrame) {
    return {Errc::kInvalidArgument,
            "a message of " + std::to_string(frame.size()) + " bytes to " + name_ + " is larger than 16 MiB"};
  }
  if (!send_error_.ok()) return send_error_;
  if (sent_ > kCompactAbove) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  sealer_.seal(frame, queue_);
  return {};
}

Status SecureStream::flush() {
  while (send_error_.ok() && wants_write()) {
    const ssize_t n = ::send(fd_.get(), &queue_[sent_], queue_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent_ += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      send_error_ = gone(errno);
    }
  }
  // All bytes are sent, or never will be. Empty the queue, so that wants_write() is false and no caller waits for room.
  if (queue_.capacity() > kCompactAbove) queue_ = {};  // do not keep the memory of one large message
  queue_.clear();
  sent_ = 0;
  return send_error_;
}

Result<bool> SecureStream::receive_some() {
  for (;;) {
    const auto room = opener_.writable();
    const ssize_t n = ::recv(fd_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (n > 0) {
      opener_.commit(static_cast<std::size_t>(n));
      return true;
    }
    if (n == 0) return gone(0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return gone(errno);
  }
}

Result<bool> SecureStream::receive_frame(std::vector<std::byte>& out) {
  if (!receive_error_.ok()) return receive_error_;
  for (;;) {
    const auto whole = opener_.next(out);
    if (!whole.ok()) return receive_error_ = broken(whole.status());
    if (*whole) return true;
    const auto more = receive_some();
    if (!more.ok()) return receive_error_ = more.status();
    if (!*more) return false;
  }
}

Status SecureStream::give_up(LinkEnd end, const std::string& how) {
  if (receive_error_.ok()) receive_error_ = gone(end, how);
  if (send_error_.ok()) send_error_ = receive_error_;
  return receive_error_;
}

Status SecureStream::send_frame_blocking(std::span<const std::byte> frame, TimePoint deadline) {
  DISTRUN_RETURN_IF_ERROR(send_frame(frame));
  for (;;) {
    DISTRUN_RETURN_IF_ERROR(flush());
    if (!wants_write()) return {};
    if (const Status ready = wait_ready(fd_.get(), POLLOUT, deadline); !ready.ok()) {
      return ready.with_context("sending to " + name_);
    }
  }
}

Result<std::vector<std::byte>> SecureStream::receive_frame_blocking(TimePoint deadline) {
  std::vector<std::byte> frame;
  for (;;) {
    if (wants_write()) DISTRUN_RETURN_IF_ERROR(flush());
    const auto whole = receive_frame(frame);
    if (!whole.ok()) return whole.status();
    if (*whole) return frame;
    const short events = wants_write() ? POLLIN | POLLOUT : POLLIN;
    if (const Status ready = wait_ready(fd_.get(), events, deadline); !ready.ok()) {
      return ready.with_context("waiting for a message from " + name_);
    }
  }
}

Result<Fd> SecureStream::release_plain() {
  if (!send_error_.ok()) return send_error_;
  if (!receive_error_.ok()) return receive_error_;
  if (wants_write() || !opener_.empty()) {
    return Status(Errc::kProtocol, "the connection to " + name_ + " still holds bytes of a frame");
  }
  const Status released(Errc::kInternal, "the connection to " + name_ + " has been given to its bulk user");
  send_error_ = released;
  receive_error_ = released;
  allow_slow_reader(fd_.get());
  return fd_.release();
}

}  // namespace distrun::net
