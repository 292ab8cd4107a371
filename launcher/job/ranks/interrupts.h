// Signals that ask the launcher to end the job. Finds those that repeat the request, after which ranks are killed at
// once. Pure.
#pragma once

#include <signal.h>

#include <optional>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class Interrupts {
 public:
  // A signal that comes with the first one is part of it: a closed terminal sends several SIGHUPs, and a service
  // manager sends SIGTERM and SIGHUP together. A second Ctrl-C always repeats the request.
  static constexpr Duration kTogether = std::chrono::seconds(1);

  void take(int signal, TimePoint now) {
    repeated_ = repeated_ || repeats(signal, now);
    if (!first_) first_ = now;
    typed_ = typed_ || signal == SIGINT;
  }
  // The user asked again, so the job must end now.
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
