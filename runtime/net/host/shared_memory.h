// Memory that processes share: one memfd and one mapping. It has no name in the file system, so kill -9 leaves nothing
// behind. create() reserves all pages and seals the size, so an access never raises SIGBUS, and a memory limit is an
// error of create(). Forked children do not inherit it (MADV_DONTFORK).
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
  // `name` appears only in /proc/PID/maps.
  static Result<SharedMemory> create(const std::string& name, std::size_t bytes);
  // Maps the memory of another process. Refuses a descriptor that is not sealed, not reserved, or not of `bytes`.
  static Result<SharedMemory> adopt(Fd memfd, std::size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // to pass to another process
  void close_fd() { fd_.reset(); }                    // the mapping keeps the memory

 private:
  Status map(std::size_t bytes);
  Fd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;    // the requested size
  std::size_t mapped_ = 0;  // rounded up to whole pages
};

}  // namespace distrun::net
