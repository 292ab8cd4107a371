#include "runtime/backend/tcp/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>

#include "runtime/backend/backend.h"

namespace distrun::backend::tcp {
namespace {

Io stalled(int error) {
  if (error == EFAULT) return Io::kFault;
  return error == EAGAIN || error == EWOULDBLOCK ? Io::kBlocked : Io::kGone;
}

}  // namespace

Status memory_fault(Access access) {
  const std::string text = access == Access::kRead ? "read. Was the file that it maps cut?"
                                                   : "written. Does it map a file that is read-only?";
  return Status(ErrorInfo{.code = Errc::kSystem,
                          .message = "tcp: the memory of a tensor cannot be " + text,
                          .cause = "unusable memory",
                          .own_memory = true});
}

Status broken_seal(Io io, int peer) {
  const std::string rank = "rank " + std::to_string(peer);
  if (io == Io::kUsedUp) {
    return Status(
        ErrorInfo{.code = Errc::kProtocol,
                  .message = "tcp: the connection to " + rank + " has carried as many records as its keys allow",
                  .cause = "no record numbers left",
                  .usable = false});
  }
  return Status(ErrorInfo{.code = Errc::kProtocol,
                          .message = "tcp: data of " + rank + " was changed on the way (the tag of a record is wrong)",
                          .ranks = {peer},
                          .cause = "its data was changed on the way",
                          .usable = false,
                          .link = LinkEnd::kTampered});
}

void MessageWriter::protect(net::RecordCipher* cipher) {
  if (cipher != nullptr) records_ = std::make_unique<net::RecordWriter>(*cipher, kHeaderBytes);
}

void MessageWriter::begin(const Header& header) {
  DISTRUN_CHECK(idle(), "a message is still being written");
  header_ = encode(header);
  pieces_.add(header_.data(), header_.size());
  sealed_ = false;
}

Io MessageWriter::write(int fd) {
  if (records_ != nullptr && !sealed_ && !idle()) {
    if (!records_->seal(header_, pieces_)) return Io::kUsedUp;
    sealed_ = true;
  }
  while (!pieces_.empty()) {
    const msghdr message{.msg_iov = pieces_.data(), .msg_iovlen = pieces_.count()};
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      return stalled(error_);
    }
    pieces_.advance(static_cast<std::size_t>(sent));
  }
  return Io::kDone;
}

void MessageReader::protect(net::RecordCipher* cipher) {
  if (cipher != nullptr) records_ = std::make_unique<net::RecordReader>(*cipher, kHeaderBytes);
}

Io MessageReader::receive(int fd, Pieces& into) {
  while (!into.empty()) {
    msghdr message{.msg_iov = into.data(), .msg_iovlen = into.count()};
    const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      return stalled(error_);
    }
    error_ = 0;
    if (got == 0) return Io::kGone;
    into.advance(static_cast<std::size_t>(got));
    if (!take(static_cast<std::size_t>(got))) return Io::kForged;
  }
  return Io::kDone;
}

bool MessageReader::take(std::size_t bytes) {
  if (records_ != nullptr) return records_->take(bytes);
  const std::size_t of_header = std::min(bytes, kHeaderBytes - header_read_);
  header_read_ += of_header;
  payload_.advance(bytes - of_header);
  return true;
}

// Checks the header as soon as it has been opened. So an unexpected message is distinguished from a forged one.
Io MessageReader::read_records(int fd, bool body) {
  if (body && !records_->placed()) records_->place(payload_);
  Io io = Io::kDone;
  while (io == Io::kDone && !has_header()) {
    both_.clear();
    records_->add_missing(both_);
    io = receive(fd, both_);
    header_read_ = records_->has_head() ? kHeaderBytes : records_->at_boundary() ? 0 : 1;
    if (has_header()) std::ranges::copy(records_->head(), header_.begin());
  }
  if (!body || !has_header() || io == Io::kForged) return io;
  const Result<Header> got = header();
  if (!got.ok() || got->bytes != records_->body_bytes()) return io == Io::kDone ? Io::kBlocked : io;
  if (io != Io::kDone) return io;
  while (!records_->has_body()) {
    both_.clear();
    records_->add_missing(both_);
    if (io = receive(fd, both_); io != Io::kDone) return io;
  }
  if (!records_->open_body()) return Io::kForged;
  payload_.clear();
  return Io::kDone;
}

Io MessageReader::read_header(int fd) {
  if (records_ != nullptr) return read_records(fd, false);
  both_.clear();
  both_.add(header_.data() + header_read_, kHeaderBytes - header_read_);
  return receive(fd, both_);
}

Io MessageReader::read(int fd) {
  if (records_ != nullptr) return read_records(fd, true);
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
  if (records_ != nullptr) records_->next();
}

}  // namespace distrun::backend::tcp
