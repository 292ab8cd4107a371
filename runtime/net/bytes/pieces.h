// A message as a list of memory pieces, in order, without the part that is already sent or received. No I/O.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <vector>

namespace distrun::net {

class Pieces {
 public:
  void clear();
  void add(const void* data, std::size_t size);  // adjacent pieces are merged
  void advance(std::size_t bytes);
  [[nodiscard]] bool empty() const { return next_ == pieces_.size(); }
  [[nodiscard]] std::size_t size() const { return left_; }  // bytes that remain
  // The first remaining pieces, as many as one system call takes.
  [[nodiscard]] iovec* data() { return pieces_.data() + next_; }
  [[nodiscard]] std::size_t count() const;
  // Calls f(data, bytes) for each remaining piece.
  template <class F>
  void for_each(F f) const {
    for (std::size_t i = next_; i < pieces_.size(); ++i) {
      f(static_cast<std::byte*>(pieces_[i].iov_base), pieces_[i].iov_len);
    }
  }

 private:
  std::vector<iovec> pieces_;
  std::size_t next_ = 0;
  std::size_t left_ = 0;
};

}  // namespace distrun::net
