// The first state of a job. Agents start. If it decides which hosts get ranks, they report what their hosts have. They
// prepare their hosts, or say why they cannot take part. They try each other's addresses. If rank 0's address is an
// IPv6 address, they resolve the names of its host. Then everything is known for the plan.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/job/agents/job_state.h"
#include "launcher/job/start/agent_tree.h"
#include "launcher/job/start/job_config.h"
#include "launcher/job/start/login_check.h"
#include "launcher/job/start/master_naming.h"
#include "launcher/job/start/probe_round.h"
#include "launcher/job/start/start_faults.h"
#include "launcher/job/start/start_queue.h"
#include "launcher/plan/launch_plan.h"
#include "runtime/base/log.h"
#include "runtime/net/identity/world.h"

namespace distrun::launcher {

class JobStart final : public JobState {
 public:
  using Print = std::function<void(const std::string&)>;
  // All arguments must outlive it. `key` is the job's key.
  JobStart(const JobConfig& config, const net::JobKey& key, AgentLinks& agents, AgentSpawner& spawner, const Log& log,
           Print print);

  // Asks all candidates for their topology; their answers lead to Outcome::kChosen.
  void ask(TimePoint now);
  // Prepares the hosts of this layout. `store` is the address of the rendezvous as seen from this machine.
  void prepare(const JobLayout& layout, const std::string& store, TimePoint now);

  enum class Outcome {
    kNone,     // not yet
    kChosen,   // layout() has the hosts that get ranks: prepare() comes next
    kReady,    // start_ranks() comes next
    kRefused,  // the job cannot start; refusal() says why
  };
  [[nodiscard]] Outcome outcome() const { return outcome_; }
  [[nodiscard]] const JobLayout& layout() const { return layout_; }
  [[nodiscard]] const Refusal& refusal() const { return refusal_; }
  // True if this agent has answered everything that it was asked so far.
  [[nodiscard]] bool has_answered(const AgentLink& agent) const;
  // Prints the plan, and orders the agents to start their ranks.
  void start_ranks();

  Result<bool> on(AgentLink& agent, const Frame& frame) override;
  void on_lost(AgentLink&) override {}
  void on_explained(AgentLink& agent) override;
  void on_silent(const HostLoss& loss) override;
  void watch(Poller& poller) override;
  void tick(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> deadline() const override;

 private:
  enum class Phase { kAsking, kPreparing, kProbing, kNaming };

  void start_agents(TimePoint now);
  void start_agent(AgentLink& agent, TimePoint now);
  void bring_up(AgentLink& agent, AgentHandle handle, TimePoint now);
  void order_preparation(AgentLink& agent);
  void answered(AgentLink& agent, const Prepared& answer);
  void refused(AgentLink& agent, const Refused& why);
  void advance();
  void choose_hosts();
  void open_probes();
  void choose_addresses();
  void give_up(AgentLink& agent, const std::string& why);
  void refuse(Refusal why);
  void resolved(AgentLink& agent, const Resolved& answer);
  void make_ready();

  const JobConfig& config_;
  const net::JobKey key_;
  AgentLinks& agents_;
  AgentSpawner& spawner_;
  const Print print_;
  Phase phase_ = Phase::kPreparing;
  JobLayout layout_;
  StartQueue queue_;
  AgentTree tree_;
  ProbeRound probes_;
  LoginCheck logins_;
  MasterNaming naming_;
  StartFaults faults_;
  LaunchPlan plan_;  // valid when the outcome is kReady
  Outcome outcome_ = Outcome::kNone;
  Refusal refusal_;
};

}  // namespace distrun::launcher
