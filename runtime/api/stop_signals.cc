#include "runtime/api/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>

namespace distrun::api {
namespace {

// The only data that a handler may use.
std::atomic<int> g_event{-1};
std::atomic<int> g_number{0};

extern "C" void on_stop_signal(int number) {
  // A fork has happened, and forget_handlers() has not run yet. SA_RESETHAND has restored the default action.
  if (in_forked_child()) {
    ::raise(number);
    return;
  }
  const int error = errno;
  g_number.store(number, std::memory_order_seq_cst);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(g_event.load(std::memory_order_seq_cst), &one, sizeof one);
  errno = error;
}

bool is_ours(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == on_stop_signal;
}

// A forked child is no rank. A signal to such a worker process is only for that process, and ends it.
void forget_handlers() {
  g_event.store(-1, std::memory_order_relaxed);
  for (const int number : kStopSignals) {
    if (is_ours(number)) ::signal(number, SIG_DFL);
  }
}

}  // namespace

Result<std::unique_ptr<StopSignals>> StopSignals::create(net::WaitSet& wait_set, std::function<void(int)> on_signal) {
  static std::once_flag watches_forks;
  std::call_once(watches_forks, [] { ::pthread_atfork(nullptr, nullptr, forget_handlers); });
  std::unique_ptr<StopSignals> out(new StopSignals(wait_set));
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return errno_status("eventfd", errno);
  DISTRUN_RETURN_IF_ERROR(
      wait_set.add(event.get(), EPOLLIN, [fd = event.get(), on_signal = std::move(on_signal)](std::uint32_t) {
        std::uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t n = ::read(fd, &ignored, sizeof ignored);
        on_signal(g_number.load(std::memory_order_relaxed));
      }));
  out->event_ = GuardedFd(std::move(event));
  g_number.store(0, std::memory_order_relaxed);
  return out;
}

void StopSignals::begin() {
  g_event.store(event_.get(), std::memory_order_seq_cst);
  // Handlers of an earlier session may still be installed, and one of them may have run since create().
  const std::uint64_t one = 1;
  if (g_number.load(std::memory_order_seq_cst) == 0) return;
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
}

StopSignals::~StopSignals() {
  for (const int number : kStopSignals) {
    if (!outlive_.load(std::memory_order_relaxed) && is_ours(number)) ::signal(number, SIG_DFL);
  }
  g_event.store(-1, std::memory_order_relaxed);
  if (event_.valid()) wait_set_.remove(event_.get());
}

void StopSignals::take_over(std::initializer_list<int> numbers) {
  for (const int number : numbers) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = on_stop_signal;
    ours.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    ::sigaction(number, &ours, nullptr);
  }
}

}  // namespace distrun::api
