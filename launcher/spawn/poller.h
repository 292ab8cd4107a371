// The only place where the head and an agent block. In each round the callers name all descriptors again, so no
// registration outlives its descriptor. For a few hundred descriptors this costs microseconds.
#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

class Poller {
 public:
  using Callback = std::function<void(short)>;

  void clear();
  // `events` is POLLIN, POLLOUT or both. The callback also gets POLLHUP and POLLERR. It may close any descriptor.
  void watch(int fd, short events, Callback on_ready);
  // Blocks until something is ready, the deadline passes or a signal arrives, then runs the callbacks of what is ready.
  Status wait(std::optional<TimePoint> deadline);
  // When the last wait() returned from the kernel, before it ran callbacks. Input that had arrived by then has been
  // read in this round. Input that came later, perhaps while a callback blocked, has not. So silence is judged at this
  // time.
  [[nodiscard]] TimePoint woke() const { return woke_; }

 private:
  std::vector<pollfd> fds_;
  std::vector<Callback> callbacks_;
  TimePoint woke_;
};

// The earlier of two deadlines; either may be absent.
std::optional<TimePoint> earlier(std::optional<TimePoint> a, std::optional<TimePoint> b);

}  // namespace distrun::launcher
