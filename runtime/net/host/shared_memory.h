// Memory that processes share: one memfd, one mapping. It has no name anywhere, so nothing is left behind by kill -9.
// All pages are reserved when it is made and its size is sealed, so touching it never raises SIGBUS: a limit is an
// error of create(). Not inherited by fork (MADV_DONTFORK).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace distrun::net {

class SharedMemory {
 public:
  SharedMemory() = default;
  // `name` appears in /proc/PID/maps only.
  static Result<SharedMemory> create(const std::string& name, std::size_t bytes);
  // Maps what another process made; refuses a descriptor that is not of `bytes`, sealed and reserved.
  static Result<SharedMemory> adopt(Fd memfd, std::size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // to hand over
  void close_fd() { fd_.reset(); }                    // the mapping keeps the memory

 private:
  Status map(std::size_t bytes);
  Fd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;    // as asked for
  std::size_t mapped_ = 0;  // whole pages
};

}  // namespace distrun::net
