// --preempt-signal: what a notice means. A batch system gives one to many processes of a job at once, and the launcher,
// the agents and the ranks each tell of theirs: together they are one. Pure.
#pragma once

#include <signal.h>

#include <utility>

namespace distrun::launcher {

class Notice {
 public:
  enum class Means {
    kKnown,  // nothing that is not being done already
    kStop,   // ranks are to stop by themselves
    kUsual,  // what the signal means without the option
  };
  struct State {
    bool ending = false;
    bool any_in_session = false;  // somebody could be told to stop
    bool stopping = false;        // ranks have told of one, which at_rank() has not heard yet
  };

  // The launcher itself got `signal`. Its first one is what others may have told of before; a second SIGTERM is meant.
  Means at_launcher(int signal, const State& job) {
    const bool first = !std::exchange(launcher_, true);
    const bool taken = taken_ || job.stopping;
    if (taken && (first || (signal != SIGTERM && !job.ending))) return Means::kKnown;
    if (taken || job.ending || !job.any_in_session) return Means::kUsual;
    taken_ = true;
    return Means::kStop;
  }

  Means at_agent(const State& job) {
    if (taken_ || job.ending || job.stopping) return Means::kKnown;
    taken_ = true;
    return job.any_in_session ? Means::kStop : Means::kUsual;
  }

  // A rank that knows of it has told all others.
  Means at_rank(const State& job) {
    if (taken_ || job.ending) return Means::kKnown;
    taken_ = true;
    return Means::kStop;
  }

 private:
  bool taken_ = false;     // it has been acted on
  bool launcher_ = false;  // has got it itself
};

}  // namespace distrun::launcher
