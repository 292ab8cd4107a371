// A named thread of ours that takes no signals: those belong to the program's own threads.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <thread>
#include <utility>

namespace distrun {

// `name` is cut to the kernel's 15 characters. `body` is called as body(std::stop_token) or body().
template <class Body>
std::jthread named_thread(const std::string& name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The mask is inherited, so there is no moment in which the new thread could take a signal.
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::jthread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace distrun
