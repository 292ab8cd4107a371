// A named thread of ours that takes no signals but those of its own faults: the others belong to the program's threads.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/status.h"

namespace distrun {

// While it lives, the calling thread takes no signals, and threads that it makes never do. A fault (SIGSEGV) still
// reaches its handler: blocked, the kernel would end the process before faulthandler or a sanitizer could speak.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t mask;
    sigfillset(&mask);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&mask, fault);
    pthread_sigmask(SIG_BLOCK, &mask, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// Behind the system's text of why there is no more thread or process.
inline constexpr char kProcessLimit[] =
    "; is the limit of processes (ulimit -u, or pids.max of the container) reached?";

// `name` is cut to the kernel's 15 characters. `body` is called as body(std::stop_token) or body(). kSystem if there
// cannot be one more thread.
template <class Body>
Result<std::jthread> named_thread(const std::string& name, Body body) {
  // The mask is inherited, so there is no moment in which the new thread could take a signal.
  const SignalsBlocked blocked;
  try {
    std::jthread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
    return thread;
  } catch (const std::system_error& error) {
    return Status(Errc::kSystem,
                  "the thread " + name + " cannot be started: " + error.code().message() + kProcessLimit);
  }
}

}  // namespace distrun
