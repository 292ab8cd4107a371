// Keeps resources from forked children. A DataLoader forks its workers from a rank. If the workers kept the rank's
// sockets, the peers of a killed rank would see no end of file until the workers ended. So the child closes every
// registered descriptor. It never shuts a connection down, because the parent still uses it. In the child, distrun
// refuses every call.
//
// The registry belongs to the process, because pthread_atfork does not know sessions. Safe from any thread.
#pragma once

#include <cstddef>

#include "runtime/base/fd.h"

namespace distrun {

// True in a child of a process that called arm_fork_guard() or registered a descriptor. Costs two loads.
bool in_forked_child();
using Advise = int (*)(void* memory, std::size_t size, int advice);
void arm_fork_guard(Advise advise = nullptr);  // default: madvise; tests pass another in the process's first call

// Every child that is forked from now on closes `fd`. Call forget_in_child(fd) before you close it in this process.
void close_in_child(int fd);
void forget_in_child(int fd);

// Owns a descriptor and keeps it registered while it is open.
class GuardedFd {
 public:
  GuardedFd() = default;
  explicit GuardedFd(Fd fd) : fd_(std::move(fd)) {
    if (fd_.valid()) close_in_child(fd_.get());
  }
  GuardedFd(GuardedFd&&) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::move(other.fd_);
    }
    return *this;
  }
  ~GuardedFd() { reset(); }

  [[nodiscard]] int get() const { return fd_.get(); }
  [[nodiscard]] bool valid() const { return fd_.valid(); }
  void reset() {
    if (!fd_.valid()) return;
    // In a child, this number may already belong to another file.
    if (in_forked_child()) {
      [[maybe_unused]] const int stale = fd_.release();
      return;
    }
    forget_in_child(fd_.get());
    fd_.reset();
  }
  // Gives up the descriptor and unregisters it.
  [[nodiscard]] Fd release() {
    if (fd_.valid()) forget_in_child(fd_.get());
    return std::move(fd_);
  }

 private:
  Fd fd_;
};

}  // namespace distrun
