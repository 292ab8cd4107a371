// Signals that ask the launcher to end the job: which of them repeat the request, so that ranks are killed at once.
// Pure.
#pragma once

#include <signal.h>

#include <optional>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class Interrupts {
 public:
  // One that comes with the first is part of it: a terminal that is closed sends several SIGHUPs, a service manager
  // SIGTERM and SIGHUP together. A second Ctrl-C is always meant.
  static constexpr Duration kTogether = std::chrono::seconds(1);

  void take(int signal, TimePoint now) {
    repeated_ = repeated_ || repeats(signal, now);
    if (!first_) first_ = now;
    typed_ = typed_ || signal == SIGINT;
  }
  // The user asked again: the job is to end now.
  [[nodiscard]] bool repeated() const { return repeated_; }

 private:
  [[nodiscard]] bool repeats(int signal, TimePoint now) const {
    if (!first_ || signal == SIGHUP) return false;
    return (signal == SIGINT && typed_) || now - *first_ >= kTogether;
  }

  std::optional<TimePoint> first_;
  bool typed_ = false;  // Ctrl-C has come
  bool repeated_ = false;
};

}  // namespace distrun::launcher
