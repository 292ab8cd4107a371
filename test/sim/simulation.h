// The whole job on one clock: virtual ranks, their programs, the network between them, and the fault. Deterministic.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "test/sim/caller.h"
#include "test/sim/fabric.h"
#include "test/sim/findings.h"
#include "test/sim/log_witness.h"
#include "test/sim/network.h"
#include "test/sim/oracle.h"
#include "test/sim/scenario.h"
#include "test/sim/scheduler.h"
#include "test/sim/virtual_rank.h"

namespace distrun::sim {

class Mutant;

class Simulation {
 public:
  // `mutant` may be null. The scenario and the mutant must outlive the simulation.
  Simulation(const Scenario& scenario, Mutant* mutant, std::function<void(const std::string&)> trace);

  void run();
  [[nodiscard]] const Findings& findings() const { return findings_; }
  [[nodiscard]] long events() const { return events_; }
  [[nodiscard]] long held() const { return network_.held(); }

 private:
  class Provider final : public engine::BackendProvider {
   public:
    Provider(Fabric& fabric, const Program& program, int rank) : fabric_(fabric), program_(program), rank_(rank) {}
    Result<std::vector<std::unique_ptr<backend::Backend>>> make(int set, const std::vector<int>& members) override;

   private:
    Fabric& fabric_;
    const Program& program_;
    const int rank_;
  };

  struct Rank {
    std::unique_ptr<Provider> backends;
    std::unique_ptr<VirtualRank> engine;  // null after it has exited
    std::unique_ptr<Caller> caller;
    TimePoint alarm = TimePoint::max();
    TimePoint busy;       // until then it is busy sending and takes no step
    bool waits = false;   // a step is scheduled for that time
    bool acts = false;    // an action of its program is scheduled
    bool frozen = false;  // has stopped running
    bool over = false;    // has noticed the end of the job
    bool gone_alone = false;
    std::shared_ptr<engine::CallTicket> going;
  };
  [[nodiscard]] Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void make_rank(int rank);
  [[nodiscard]] engine::EngineOptions options_of(int rank);
  void say(const std::string& what) const;

  void step(int rank);
  bool is_busy(int rank);
  void set_alarm(int rank, TimePoint when);
  void plan_act(int rank);
  void act(int rank);
  void leave(int rank);
  void give_up_waiting(int rank);
  void end(int rank);
  void go(int rank);
  void remove(int rank);

  void strike();
  void strike_one(int rank);
  void kill(int rank);
  void exit_early(int rank);
  void tell_launcher(const net::JobEvent& event);
  [[nodiscard]] bool not_needed(int rank) const;
  void check_end();

  const Scenario& scenario_;
  Mutant* const mutant_;
  const std::function<void(const std::string&)> trace_;
  Findings findings_;
  Scheduler scheduler_;
  Random random_;
  Network network_;
  Fabric fabric_;
  LogWitness witness_;
  Oracle oracle_;
  std::vector<Rank> ranks_;
  int running_ = 0;     // ranks that exist and are not frozen
  long strike_at_ = 0;  // the fault strikes after this many submissions
  bool struck_ = false;
  long events_ = 0;
  TimePoint moved_;  // when a program last made progress
};

}  // namespace distrun::sim
