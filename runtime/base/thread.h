// Starts the named threads of the runtime. They receive no signals except their own faults. All other signals go to the
// threads of the user's program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/status.h"

namespace distrun {

// Blocks signals on the calling thread during its lifetime. Threads that it starts inherit the mask and keep it.
// Faults such as SIGSEGV stay unblocked. With a blocked fault the kernel would end the process before faulthandler or a
// sanitizer could report it.
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

// Appended to the system's error text when a thread or a process cannot be created.
inline constexpr char kProcessLimit[] =
    ". Is the limit of processes reached (ulimit -u, or pids.max of the container)?";

// `name` is cut to 15 characters, the kernel's limit. `body` is called as body(std::stop_token) or body(). Returns
// kSystem if the system refuses another thread.
template <class Body>
Result<std::jthread> named_thread(const std::string& name, Body body) {
  // The new thread inherits the mask, so it cannot receive a signal at any time.
  const SignalsBlocked blocked;
  try {
    std::jthread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
    return thread;
  } catch (const std::system_error& error) {
    return Status(Errc::kSystem, "cannot start the thread " + name + ": " + error.code().message() + kProcessLimit);
  }
}

}  // namespace distrun
