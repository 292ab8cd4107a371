// The agent: one process on each host. It receives the plan of its host and the job's key from the head. It starts,
// pins, watches and reaps the ranks, and forwards their output and exits. When it ends, nothing that it started is
// left. One thread, one event loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/carrier_watch.h"
#include "launcher/agent/ending.h"
#include "launcher/agent/head_connection.h"
#include "launcher/agent/host_starter.h"
#include "launcher/agent/preparation.h"
#include "launcher/agent/ranks.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/frames.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"

namespace distrun::launcher {

// Values that MPI's launcher gives to a rank (--mpi): variables, and PMI's descriptor, if it has one.
struct MpiTask {
  Environment variables;
  Fd descriptor;
  CarrierWatch above;
};

class Agent {
 public:
  // `head` carries the messages. The agent shares `lease_end` with its guard, if it has a guard.
  static Result<std::unique_ptr<Agent>> create(FramePipe head, LeaseEnd lease_end = {}, MpiTask task = {});
  // Returns when the job is over on this host.
  void run();
  // The result, valid after run(). 0: success. Otherwise the code of the first rank that failed (128 + signal), or the
  // code of the agent's refusal. 69: the head was lost before ranks had started; 75: after that. Only
  // `distrun agent --connect` exits with this code. To the head, and to MPI's launcher, a code other than 0 would mean
  // that the agent itself has failed.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  Agent(HeadConnection head, SignalSource signals, MpiTask task);

  void watch();
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  void receive();
  void handle(const Frame& frame);
  void prepare(const Prepare& order);
  void probe(const Probe& order);
  void report_states(const AskStates& question);
  void start(const Start& order);
  void start_ranks(const Start& order);
  void start_hosts(const StartHosts& order);
  void end_host(const HostGone& host);
  void report_failed_hosts();
  void on_signals();
  void reap();
  void rank_ended(RankProcess& rank, int status, bool out_of_memory);
  void report_drained();

  // How the agent ends ranks, and itself.
  void refuse(int exit_code, std::string text);
  void head_lost();
  void check_lease();
  void failed(int exit_code);
  void terminate();
  void check_exec(RankProcess& rank);
  void act(const Ending::Actions& actions);
  void kill_everything();
  [[nodiscard]] std::vector<pid_t> carriers() const;
  [[nodiscard]] RankProcess::OnOutput forward_output();

  HeadConnection head_;
  MpiTask mpi_;
  SignalSource signals_;
  Poller poller_;
  Preparation preparation_;
  std::unique_ptr<HostStarter> starter_;  // set if this host starts agents of other hosts
  RankCgroup cgroup_;
  Ranks ranks_;
  Ending ending_{Duration::zero()};
  Ending::View below_;  // the processes below this one, at the last check
  OomKills oom_kills_;
  int exit_code_ = 0;
  bool terminated_ = false;  // this agent has sent TERM or KILL to some rank
  bool done_ = false;        // no process is left below this one
  bool finished_ = false;    // done_, and the last message for the head is queued
};

// The main function of `distrun agent`. `guard`: starts a guard process above the agent. If the agent is killed, the
// guard ends the processes below it. Used on hosts where no other process would do so.
int agent_main(bool guard);

}  // namespace distrun::launcher
