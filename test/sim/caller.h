// The program of one virtual rank. It submits tensors in a random order, makes calls, and collects completed
// operations.
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

  // Performs one action, or a burst of several. Returns false if nothing can be done until something completes.
  bool act(TimePoint now);
  void collect(TimePoint now);
  void stop_submitting() { stopped_ = true; }
  void leave();

  [[nodiscard]] bool done() const;  // everything was submitted and (unless it is hasty) has completed
  [[nodiscard]] bool left() const { return left_; }
  [[nodiscard]] std::string missing() const;  // names the operations in flight here; empty: none

 private:
  struct UnitState {
    int round = 0;                           // the next round
    int moving = 0;                          // the round of `handles`
    std::vector<engine::HandlePtr> handles;  // by slot of the unit; empty: not in flight
    bool dropped = false;                    // its set does not exist, or was removed
  };
  struct SetState {
    engine::HandlePtr join;  // null unless a join is in flight
    bool joined = false;     // also true if it will never join
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
  std::map<int, int> ids_;  // index in Program::sets -> the engine's id
  int removing_ = -1;       // the engine's id of the set that the call in flight removes
  std::size_t next_call_ = 0;
  std::shared_ptr<engine::CallTicket> ticket_;
  bool stopped_ = false;
  bool left_ = false;
};

}  // namespace distrun::sim
