// Signals that ask the launcher to end the job. Finds those that repeat the request, after which ranks are killed at
// once. Pure.
#pragma once

#include <signal.h>

#include <optional>
#include <set>

#include "runtime/base/clock.h"

namespace distrun::launcher {

class Interrupts {
 public:
  // A signal that comes with the first one is part of it: a closed terminal sends several SIGHUPs, and a service
  // manager sends SIGTERM and SIGHUP together.
  static constexpr Duration kTogether = std::chrono::seconds(1);
  // One Ctrl-C may arrive twice: from the terminal, and from a program around distrun that passes it on (uv run). A
  // person needs more time to type it again, and means it.
  static constexpr Duration kPassedOn = std::chrono::milliseconds(250);

  void take(int signal, TimePoint now) {
    repeated_ = repeated_ || repeats(signal, now);
    if (!first_) first_ = now;
    if (signal == SIGINT && !typed_) typed_ = now;
  }
  // True for a Ctrl-C that is the one before, which has arrived once more. Call it before take().
  [[nodiscard]] bool passed_on(int signal, TimePoint now) const {
    return signal == SIGINT && typed_ && now - *typed_ < kPassedOn;
  }
  // This rank gets the first Ctrl-C before it has called init().
  void add_starting(int rank) { starting_.insert(rank); }
  // True once if such a rank calls init() now: a library has caught the exception while it was loaded, and continued.
  bool take_starting(int rank) { return starting_.erase(rank) != 0; }
  // The user asked again, so the job must end now.
  [[nodiscard]] bool repeated() const { return repeated_; }

 private:
  [[nodiscard]] bool repeats(int signal, TimePoint now) const {
    if (!first_ || signal == SIGHUP) return false;
    return (signal == SIGINT && typed_) || now - *first_ >= kTogether;
  }

  std::optional<TimePoint> first_;
  std::optional<TimePoint> typed_;  // the first Ctrl-C
  bool repeated_ = false;
  std::set<int> starting_;
};

}  // namespace distrun::launcher
