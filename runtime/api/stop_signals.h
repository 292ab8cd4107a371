// SIGTERM and SIGUSR1 as requests to stop all ranks, where the program has left them to the system. A second one means
// it: it does what it always did. One per process, as handlers are.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/net/wait_set.h"

namespace distrun::api {

class StopSignals {
 public:
  // `on_signal` runs inside the wait set's poll(). The wait set outlives this.
  static Result<std::unique_ptr<StopSignals>> create(net::WaitSet& wait_set, std::function<void(int)> on_signal);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // From now on; handlers of the program's own stay. Any thread.
  static void take_over(std::initializer_list<int> numbers);

 private:
  explicit StopSignals(net::WaitSet& wait_set) : wait_set_(wait_set) {}
  net::WaitSet& wait_set_;
  Fd event_;
};

}  // namespace distrun::api
