// Treats SIGTERM, SIGUSR1 and SIGUSR2 as requests to stop all ranks, if the program does not handle them. A second
// signal has its default action. Handlers are process-wide, so there is one object per process. Forked children have no
// such handlers.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::api {

// The signals that schedulers send before they end a job.
inline constexpr std::initializer_list<int> kStopSignals = {SIGTERM, SIGUSR1, SIGUSR2};

class StopSignals {
 public:
  // `on_signal` runs inside the wait set's poll(), once begin() has been called. The wait set outlives this.
  static Result<std::unique_ptr<StopSignals>> create(net::WaitSet& wait_set, std::function<void(int)> on_signal);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Call this when the objects that on_signal uses exist. It then runs for later signals, and for those that came since
  // create(). Any thread.
  void begin();
  // Installs the handlers for these signals. A handler of the program stays. Any thread.
  static void take_over(std::initializer_list<int> numbers);
  // The ranks stop now. The handlers then stay for one more signal after the session. A scheduler's signal may reach
  // one rank later than another, and must not kill it while it ends. Any thread.
  void outlive() { outlive_.store(true, std::memory_order_relaxed); }

 private:
  explicit StopSignals(net::WaitSet& wait_set) : wait_set_(wait_set) {}
  net::WaitSet& wait_set_;
  GuardedFd event_;
  std::atomic<bool> outlive_{false};  // unused handlers stay after the destructor
};

}  // namespace distrun::api
