// The agent: one per host. Receives its host's plan and the job's key on standard input, starts, pins, watches and
// reaps the ranks, forwards their output and exits, and leaves nothing behind. One thread, one loop.
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

// What ranks have from MPI's launcher (--mpi): variables, and the descriptor of PMI, if there is one.
struct MpiTask {
  Environment variables;
  Fd descriptor;
  CarrierWatch above;
};

class Agent {
 public:
  // `head` carries the messages. `lease_end` is shared with the guard, if there is one.
  static Result<std::unique_ptr<Agent>> create(FramePipe head, LeaseEnd lease_end = {}, MpiTask task = {});
  // Until the job is over on this host.
  void run();
  // What then says how it went here: 0, the code of the first rank that failed (128 + signal), that with which the job
  // was refused, 69 or 75 if the head was lost before or after ranks had started. For agents that somebody else starts;
  // to the head, and to MPI's launcher, a code other than 0 would mean that the agent itself has failed.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  Agent(HeadConnection head, SignalSource signals, MpiTask task);

  void watch();
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  void receive();
  void handle(const Frame& frame);
  void prepare(const Prepare& order);
  void probe(const Probe& order);
  void tell_states(const AskStates& question);
  void start(const Start& order);
  void start_ranks(const Start& order);
  void start_hosts(const StartHosts& order);
  void end_host(const HostGone& host);
  void tell_failed_hosts();
  void on_signals();
  void reap();
  void rank_ended(RankProcess& rank, int status, bool out_of_memory);
  void report_drained();

  // Ends of all kinds.
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
  std::unique_ptr<HostStarter> starter_;  // where this host starts others
  RankCgroup cgroup_;
  Ranks ranks_;
  Ending ending_{Duration::zero()};
  Ending::View below_;  // what runs below this process, as of the last look
  OomKills oom_kills_;
  int exit_code_ = 0;
  bool terminated_ = false;  // some rank was sent TERM or KILL by us
  bool done_ = false;        // nothing runs below us any more
  bool finished_ = false;    // and the head has been told everything
};

// The whole of `distrun agent`. `guard`: a process above it ends what is below it if the agent itself is killed; for
// hosts where nobody else would.
int agent_main(bool guard);

}  // namespace distrun::launcher
