// One job from the head's point of view: starts the agents, gives each its plan, serves the rendezvous, shows output,
// and ends everything. One thread, one loop; judgement is Verdict's, texts are report's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ending.h"
#include "launcher/agent/protocol.h"
#include "launcher/job/input.h"
#include "launcher/job/verdict.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/report/output.h"
#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/signals.h"
#include "runtime/net/store_server.h"
#include "runtime/net/world.h"

namespace distrun::launcher {

struct JobConfig {
  PlanRequest plan;  // without store, which the job adds
  JobCommon common;
  OutputOptions output;
  double grace = 10;
  double timeout = 0;  // seconds for the whole job; 0: none
  std::string sysroot = "/";
};

class Job {
 public:
  // The spawner must outlive the job.
  static Result<std::unique_ptr<Job>> create(const JobConfig& config, AgentSpawner& spawner);
  // Until nothing of the job is left. Returns the exit code of distrun.
  int run();

 private:
  struct Agent {
    AgentHandle handle;
    std::string host;
    std::optional<HostFacts> facts;
    bool done = false;  // it has said that nothing is left on its host
    bool gone = false;  // its process has been reaped
    bool lost = false;  // it ended, or its connection did, before it had said so
    int wait_status = 0;
    bool expected = false;  // lost while the job was being ended anyway
  };
  Job(const JobConfig& config, AgentSpawner& spawner, SignalSource signals, net::JobKey key);

  Status start_agents();
  void watch();
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  void after_round();
  bool finished();

  void receive(Agent& agent);
  void handle(Agent& agent, const Frame& frame);
  void handle_exit(const RankExited& event);
  void prepared(Agent& agent, const Prepared& answer);
  void start_ranks();
  void agent_lost(Agent& agent);
  void tell_agent_lost(const Agent& agent);
  void reap();
  void on_signals();
  void suspend();
  void rendezvous();
  void act(const JobActions& actions);
  void fail_start(int code, const std::string& text);
  void report_first_cause(bool exit_known);
  void report_end();
  template <class Message>
  void tell_all(ToAgent type, const Message& message);

  JobConfig config_;
  AgentSpawner& spawner_;
  SignalSource signals_;
  net::JobKey key_;
  std::unique_ptr<net::StoreServer> store_;
  std::unique_ptr<Output> output_;
  Verdict verdict_;
  Poller poller_;
  Input input_;
  std::vector<std::unique_ptr<Agent>> agents_;  // by host
  std::vector<pid_t> not_ours_;                 // children that this process had before it became distrun
  Ending sweep_{Duration::zero()};              // of what is left when the agents are gone
  std::optional<TimePoint> end_by_;             // --timeout
  bool started_ = false;
  bool reported_ = false;  // the first cause has been shown
  bool swept_ = false;
};

}  // namespace distrun::launcher
