// The agent: one per host. Receives its host's plan and the job's key on standard input, starts, pins, watches and
// reaps the ranks, forwards their output and exits, and leaves nothing behind. One thread, one loop.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/ending.h"
#include "launcher/agent/host_starter.h"
#include "launcher/agent/preflight/preflight.h"
#include "launcher/agent/preflight/probe.h"
#include "launcher/agent/rank_process.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/frames.h"
#include "launcher/spawn/heartbeat.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"

namespace distrun::launcher {

// What ranks have from MPI's launcher (--mpi): variables, and the descriptor of PMI, if there is one.
struct MpiTask {
  Environment variables;
  Fd descriptor;
};

class Agent {
 public:
  // `head` carries the messages; it is this process's standard input and output.
  static Result<std::unique_ptr<Agent>> create(FramePipe head, MpiTask task = {});
  // Until the job is over on this host.
  void run();
  // What then says how it went here: 0, the code of the first rank that failed (128 + signal), that with which the job
  // was refused, 69 or 75 if the head was lost before or after ranks had started. For agents that somebody else starts;
  // to the head, and to MPI's launcher, a code other than 0 would mean that the agent itself has failed.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  Agent(FramePipe head, SignalSource signals, MpiTask task);

  void receive();
  void beat(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  void handle(const Frame& frame);
  void prepare(const Prepare& order);
  [[nodiscard]] Topology topology_of(const Prepare& order) const;
  void probe(const Probe& order);
  void probe_more(TimePoint now);
  void start(const Start& order);
  void start_rank(const RankPlan& plan, const RankSetting& setting, const std::vector<std::byte>& key);
  void input(const Frame& frame);
  void start_hosts(const StartHosts& order);
  void tell_failed_hosts();
  void tell_input_taken();
  void refuse(int exit_code, std::string text);
  void head_lost();
  void failed(int exit_code);
  void note(const std::string& text);
  template <class Message>
  void send(FromAgent type, const Message& message) {
    head_.send(static_cast<std::uint8_t>(type), encode(message));
  }

  void take_leave();
  void watch();
  void on_signals();
  void terminate();
  void check_exec(RankProcess& rank);
  void reap();
  void rank_ended(RankProcess& rank, int status);
  void report_drained();
  void act(const Ending::Actions& actions);
  void kill_everything();
  void tell_left_behind();
  void tell_abandoned(const std::vector<pid_t>& processes);
  [[nodiscard]] bool ranks_alive() const;
  [[nodiscard]] std::vector<pid_t> carriers() const;
  [[nodiscard]] RankProcess::OnOutput forward_output();

  FramePipe head_;
  MpiTask mpi_;
  SignalSource signals_;
  Heartbeat heart_;
  Poller poller_;
  std::optional<Prepare> job_;
  Program program_;
  Program server_;  // what ranks run that serve the others
  HeldPorts ports_;
  std::optional<ProbeListener> listener_;  // until ranks start
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<HostStarter> starter_;  // where this host starts others
  RankCgroup cgroup_;
  std::map<int, RankProcess> ranks_;  // by rank
  bool held_ = false;                 // the head has told that it will be silent
  std::set<int> undrained_;           // have ended, but their last output has not been told complete
  Ending ending_{Duration::zero()};
  OomKills oom_kills_;
  bool out_of_memory_ = false;  // there was one of late when children were last reaped
  std::set<int> dismissed_;     // have been ended because the job needs them no more
  int exit_code_ = 0;
  bool started_ = false;
  bool any_child_ = false;
  bool carriers_only_ = false;  // they carry agents of other hosts
  bool terminated_ = false;     // some rank was sent TERM or KILL by us
  bool input_pending_ = false;
  bool done_ = false;      // nothing runs below us any more
  bool finished_ = false;  // and the head has been told everything
};

// The whole of `distrun agent`. `guard`: a process above it ends what is below it if the agent itself is killed; for
// hosts where nobody else would.
int agent_main(bool guard);

}  // namespace distrun::launcher
