// The program of one virtual rank: submits its tensors in a random order, makes its calls, collects what has completed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "test/sim/oracle.h"
#include "test/sim/random.h"
#include "test/sim/scenario.h"
#include "test/sim/virtual_rank.h"

namespace distrun::sim {

class Caller {
 public:
  Caller(const Scenario& scenario, int rank, VirtualRank& engine, Oracle& oracle, Random random);

  // Does one thing, or several in a burst; false: there is nothing to do until something completes.
  bool act(TimePoint now);
  void collect(TimePoint now);
  void stop_submitting() { stopped_ = true; }
  void leave();

  [[nodiscard]] bool done() const;  // everything was submitted and, unless it is hasty, has completed
  [[nodiscard]] bool left() const { return left_; }
  [[nodiscard]] std::string missing() const;  // what is in flight here; empty: nothing

 private:
  struct UnitState {
    int round = 0;                           // the next one
    int moving = 0;                          // the round of `handles`
    std::vector<engine::HandlePtr> handles;  // by slot of the unit; empty: not in flight
    bool dropped = false;                    // its set is not there, or not any more
  };
  struct SetState {
    engine::HandlePtr join;  // in flight
    bool joined = false;     // or never will
  };
  [[nodiscard]] const Program& program() const { return scenario_.program; }
  [[nodiscard]] bool submitted_all(std::size_t unit) const;
  [[nodiscard]] bool finished(std::size_t unit) const;
  [[nodiscard]] bool can_submit(std::size_t unit) const;
  [[nodiscard]] bool can_join(std::size_t set) const;
  [[nodiscard]] bool can_call() const;
  void submit(std::size_t unit, TimePoint now);
  void submit_twice(std::size_t unit);
  void join(std::size_t set, TimePoint now);
  void call(TimePoint now);
  void collect_join(std::size_t set, TimePoint now);
  void collect_call(TimePoint now);
  void skip_calls();
  void drop(int set);

  const Scenario& scenario_;
  const int rank_;
  VirtualRank& engine_;
  Oracle& oracle_;
  Random random_;
  std::vector<UnitState> units_;
  std::vector<SetState> sets_;
  std::map<int, int> ids_;  // Program::sets -> the engine's id
  int removing_ = -1;       // the engine's id of the set that the call in flight removes
  std::size_t next_call_ = 0;
  std::shared_ptr<engine::CallTicket> ticket_;
  bool stopped_ = false;
  bool left_ = false;
};

}  // namespace distrun::sim
