// Checks that hold for every run, whatever the seed. No rank waits forever or too long. Ranks agree on every outcome.
// Mistakes fail with the expected error, and nothing else fails. A job ends only for its cause.
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
  // A rank that has left before the fault strikes is not necessarily missed.
  void fault_struck(TimePoint now, bool all_well_possible, bool some_had_left);
  // `alone`: the rank did not wait for the others in shutdown.
  void ended(int rank, const Status& outcome, bool alone, TimePoint now);
  void refused(int rank, const std::string& what, const Status& status);
  void waits(int rank, const std::string& what);  // the run is over, and the rank still waits

  [[nodiscard]] long submissions() const { return submissions_; }
  // The longest time that an operation may take without waiting for a timer of the engine.
  [[nodiscard]] Duration wait_limit() const;

 private:
  struct Outcome {
    bool known = false;
    Errc code = Errc::kOk;
    std::string message;
    int value = -1;  // the set of a call, or the last rank of a join
    TimePoint last;  // when the last rank submitted
  };
  bool ended_with_job(const Status& status, const std::string& what);
  void names(int culprit, const Status& status, const std::string& what);
  void agree(Outcome& outcome, const Status& status, const std::string& what);
  void in_time(TimePoint since, const std::string& what, TimePoint now);
  [[nodiscard]] bool is_cause(const Status& outcome) const;

  const Scenario& scenario_;
  Findings& findings_;
  std::map<std::pair<int, int>, Outcome> tensors_;  // by slot and round
  std::map<int, Outcome> joins_;                    // by index in Program::sets
  std::map<int, Outcome> calls_;
  long submissions_ = 0;
  bool struck_ = false;
  bool all_well_possible_ = false;  // the job did not need the struck rank any more
  bool some_had_left_ = false;
  TimePoint struck_at_;
};

}  // namespace distrun::sim
