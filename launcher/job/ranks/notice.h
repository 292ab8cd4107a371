// --preempt-signal: the meaning of a notice. A batch system sends one to many processes of a job at once. The launcher,
// the agents and the ranks each report theirs, and all these reports together are one notice. Pure.
#pragma once

#include <signal.h>

#include <utility>

namespace distrun::launcher {

class Notice {
 public:
  enum class Means {
    kKnown,  // nothing new: the job already acts on it
    kStop,   // ranks must stop by themselves
    kUsual,  // the signal's meaning without the option
  };
  struct State {
    bool ending = false;
    bool any_in_session = false;  // some rank can be asked to stop
    bool stopping = false;        // ranks have reported a notice that at_rank() has not handled yet
  };

  // The launcher itself got `signal`. Its first signal may be the notice that others have reported before. A second
  // SIGTERM is a new request.
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

  // A rank that got the notice has passed it to all others.
  Means at_rank(const State& job) {
    if (taken_ || job.ending) return Means::kKnown;
    taken_ = true;
    return Means::kStop;
  }

 private:
  bool taken_ = false;     // the job has acted on a notice
  bool launcher_ = false;  // the launcher itself has got the signal
};

}  // namespace distrun::launcher
