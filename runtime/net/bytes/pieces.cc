#include "runtime/net/bytes/pieces.h"

#include <algorithm>

#include "runtime/base/status.h"

namespace distrun::net {
namespace {

constexpr std::size_t kMaxPieces = 256;  // per system call; well below IOV_MAX, which is 1024

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

}  // namespace distrun::net
