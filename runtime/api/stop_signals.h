// SIGTERM, SIGUSR1 and SIGUSR2 as requests to stop all ranks, where the program has left them to the system. A second
// one means it: it does what it always did. One per process, as handlers are; forked children have none of it.
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

// What schedulers give notice with.
inline constexpr std::initializer_list<int> kStopSignals = {SIGTERM, SIGUSR1, SIGUSR2};

class StopSignals {
 public:
  // `on_signal` runs inside the wait set's poll(), once begin() was called. The wait set outlives this.
  static Result<std::unique_ptr<StopSignals>> create(net::WaitSet& wait_set, std::function<void(int)> on_signal);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // What on_signal uses is there: it runs for what comes from now on, and for what came since create(). Any thread.
  void begin();
  // From now on; handlers of the program's own stay. Any thread.
  static void take_over(std::initializer_list<int> numbers);
  // The ranks stop: a notice that reaches one of them later than another is not to kill it while it ends. Any thread.
  void outlive() { outlive_.store(true, std::memory_order_relaxed); }

 private:
  explicit StopSignals(net::WaitSet& wait_set) : wait_set_(wait_set) {}
  net::WaitSet& wait_set_;
  GuardedFd event_;
  std::atomic<bool> outlive_{false};  // handlers that have not run stay, for one more signal
};

}  // namespace distrun::api
