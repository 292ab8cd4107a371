// Things that a forked child must not inherit. A DataLoader's workers are forked from a rank; if they kept the rank's
// sockets, a killed rank's peers would see no end of file while its workers live. So the child closes every registered
// descriptor (it never shuts one down: the connection is the parent's), and every call of ours there is refused.
//
// The registry is process-wide because fork is: pthread_atfork knows no sessions. Safe from any thread.
#pragma once

#include <cstddef>

#include "runtime/base/fd.h"

namespace distrun {

// True in a child of a process that called arm_fork_guard() or registered a descriptor. Costs two loads.
bool in_forked_child();
using Advise = int (*)(void* memory, std::size_t size, int advice);
void arm_fork_guard(Advise advise = nullptr);  // madvise; another one for tests, in the first call of the process

// `fd` is closed in every child forked from now on, until forget_in_child(fd), which must come before its close here.
void close_in_child(int fd);
void forget_in_child(int fd);

// A descriptor that is registered while it is open.
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
    // In a child the number may belong to another file by now.
    if (in_forked_child()) {
      [[maybe_unused]] const int stale = fd_.release();
      return;
    }
    forget_in_child(fd_.get());
    fd_.reset();
  }
  // Gives the descriptor up, unregistered.
  [[nodiscard]] Fd release() {
    if (fd_.valid()) forget_in_child(fd_.get());
    return std::move(fd_);
  }

 private:
  Fd fd_;
};

}  // namespace distrun
