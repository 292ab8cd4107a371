#include "runtime/backend/tcp/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>

#include "runtime/backend/backend.h"

namespace distrun::backend::tcp {
namespace {

constexpr std::size_t kMaxPieces = 256;  // per system call; well below IOV_MAX, which is 1024

Io unmoved(int error) {
  if (error == EFAULT) return Io::kFault;
  return error == EAGAIN || error == EWOULDBLOCK ? Io::kBlocked : Io::kGone;
}

}  // namespace

void Pieces::clear() {
  pieces_.clear();
  next_ = 0;
  left_ = 0;
}

void Pieces::add(const void* data, std::size_t size) {
  if (size == 0) return;
  left_ += size;
  if (!empty()) {
    iovec& last = pieces_.back();
    if (static_cast<const std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += size;
      return;
    }
  }
  pieces_.push_back({.iov_base = const_cast<void*>(data), .iov_len = size});  // iovec has no const form
}

Status memory_fault(Access access) {
  const std::string text = access == Access::kRead ? "read; was the file that it maps cut?"
                                                   : "written; does it map a file for reading only?";
  return Status(ErrorInfo{.code = Errc::kSystem,
                          .message = "tcp: the memory of a tensor cannot be " + text,
                          .cause = "unusable memory",
                          .own_memory = true});
}

void Pieces::advance(std::size_t bytes) {
  DISTRUN_CHECK(bytes <= left_, "the socket moved more than was asked for");
  left_ -= bytes;
  while (bytes > 0) {
    iovec& piece = pieces_[next_];
    const std::size_t part = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + part;
    piece.iov_len -= part;
    bytes -= part;
    if (piece.iov_len == 0) ++next_;
  }
  if (empty()) clear();
}

std::size_t Pieces::count() const { return std::min(pieces_.size() - next_, kMaxPieces); }

void MessageWriter::begin(const Header& header) {
  DISTRUN_CHECK(idle(), "a message is still being written");
  header_ = encode(header);
  pieces_.add(header_.data(), header_.size());
}

Io MessageWriter::write(int fd) {
  while (!pieces_.empty()) {
    const msghdr message{.msg_iov = pieces_.data(), .msg_iovlen = pieces_.count()};
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      return unmoved(error_);
    }
    pieces_.advance(static_cast<std::size_t>(sent));
  }
  return Io::kDone;
}

Io MessageReader::receive(int fd, Pieces& into) {
  while (!into.empty()) {
    msghdr message{.msg_iov = into.data(), .msg_iovlen = into.count()};
    const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      return unmoved(error_);
    }
    error_ = 0;
    if (got == 0) return Io::kGone;
    into.advance(static_cast<std::size_t>(got));
    take(static_cast<std::size_t>(got));
  }
  return Io::kDone;
}

void MessageReader::take(std::size_t bytes) {
  const std::size_t of_header = std::min(bytes, kHeaderBytes - header_read_);
  header_read_ += of_header;
  payload_.advance(bytes - of_header);
}

Io MessageReader::read_header(int fd) {
  both_.clear();
  both_.add(header_.data() + header_read_, kHeaderBytes - header_read_);
  return receive(fd, both_);
}

Io MessageReader::read(int fd) {
  do {
    both_.clear();
    both_.add(header_.data() + header_read_, kHeaderBytes - header_read_);
    for (const iovec& piece : std::span(payload_.data(), payload_.count())) both_.add(piece.iov_base, piece.iov_len);
    if (const Io io = receive(fd, both_); io != Io::kDone) return io;
  } while (!payload_.empty());
  return Io::kDone;
}

void MessageReader::next() {
  ++messages_;
  header_read_ = 0;
  payload_.clear();
}

}  // namespace distrun::backend::tcp
