// What must be true of every run, whatever the seed: nobody waits forever or too long, ranks agree on every outcome,
// mistakes fail as such and nothing else does, a job ends for its cause only.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "test/sim/clock.h"
#include "test/sim/findings.h"
#include "test/sim/scenario.h"

namespace distrun::sim {

class Oracle {
 public:
  Oracle(const Scenario& scenario, Findings& findings) : scenario_(scenario), findings_(findings) {}

  // --- events ---
  void submitted(int slot, int round, TimePoint now);
  void completed(int rank, int slot, int round, const engine::Handle& handle, TimePoint now);
  void joined(int set, TimePoint now) { joins_[set].last = now; }
  void join_ended(int rank, int set, const Status& status, int last, TimePoint now);
  void called(int call, TimePoint now);
  void call_ended(int rank, int call, const Status& status, int set, TimePoint now);
  // Who is struck after it has left need not be missed.
  void fault_struck(TimePoint now, bool all_well_possible, bool some_had_left);
  // `alone`: it did not wait for the others in shutdown.
  void ended(int rank, const Status& outcome, bool alone, TimePoint now);
  void refused(int rank, const std::string& what, const Status& status);
  void waits(int rank, const std::string& what);  // the run is over, and it still does

  [[nodiscard]] long submissions() const { return submissions_; }
  // Too long for anything that is not waiting for a timer of the engine's.
  [[nodiscard]] Duration patience() const;

 private:
  struct Outcome {
    bool known = false;
    Errc code = Errc::kOk;
    std::string message;
    int value = -1;  // a call's set, the last rank of a join
    TimePoint last;  // submission
  };
  bool ended_with_job(const Status& status, const std::string& what);
  void names(int culprit, const Status& status, const std::string& what);
  void agree(Outcome& outcome, const Status& status, const std::string& what);
  void in_time(TimePoint since, const std::string& what, TimePoint now);
  [[nodiscard]] bool is_cause(const Status& outcome) const;

  const Scenario& scenario_;
  Findings& findings_;
  std::map<std::pair<int, int>, Outcome> tensors_;  // by slot and round
  std::map<int, Outcome> joins_;                    // by set of the program
  std::map<int, Outcome> calls_;
  long submissions_ = 0;
  bool struck_ = false;
  bool all_well_possible_ = false;  // the fault struck who was not needed any more
  bool some_had_left_ = false;
  TimePoint struck_at_;
};

}  // namespace distrun::sim
