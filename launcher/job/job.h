// One job from the head's point of view: starts the agents, gives each its plan, serves the rendezvous, shows output,
// and ends everything. One thread, one loop; judgement is Verdict's, texts are report's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ending.h"
#include "launcher/agent/preflight/probe.h"
#include "launcher/job/cut_off.h"
#include "launcher/job/input.h"
#include "launcher/job/notice.h"
#include "launcher/job/patience.h"
#include "launcher/job/raw_terminal.h"
#include "launcher/job/start_queue.h"
#include "launcher/job/verdict.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/protocol/messages.h"
#include "launcher/report/output.h"
#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/heartbeat.h"
#include "launcher/spawn/signals.h"
#include "runtime/base/log.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/store/store_server.h"

namespace distrun::launcher {

struct JobConfig {
  PlanRequest plan;  // without store, which the job adds
  JobCommon common;
  OutputOptions output;
  double grace = 10;
  std::optional<double> stop_limit;  // seconds after a notice; none: whoever gave it ends the job when it must
  int preempt_signal = 0;            // 0: none
  double host_timeout = 5;           // seconds, the setting
  double timeout = 0;                // seconds for the whole job; 0: none
  std::optional<TimePoint> end_by;   // when they are over
  bool report_bindings = false;
  bool verbose = false;  // tell the reasons of the plan before ranks start
  std::string sysroot = "/";
  StartQueue::Limits start;
  int fan_out = 32;               // with more hosts than that, agents start others
  bool several_machines = false;  // some host is not this machine: addresses are probed
  NetworkFilter network;          // --network
  // Where set, all candidates are in plan.assignment.hosts and are asked what they have. This then decides which of
  // them get ranks, and fills in what depends on it.
  std::function<Status(const std::vector<Topology>&, JobConfig&)> assign;
};

class Job {
 public:
  // The spawner must outlive the job.
  static Result<std::unique_ptr<Job>> create(const JobConfig& config, AgentSpawner& spawner);
  // Until nothing of the job is left. Returns the exit code of distrun.
  int run();

 private:
  struct Agent {
    std::string host;
    std::string user{};
    std::size_t index = 0;
    bool up = false;        // started; what follows is of this attempt
    bool answered = false;  // it is ready, or refuses
    AgentHandle handle{};
    std::optional<HostFacts> facts{};
    std::optional<std::vector<ProbeResult>> probes{};
    Heartbeat heart{};
    Patience patience{};
    std::string tried{};    // that another host was to start it, and why it has not
    std::string printed{};  // the end of what carries it wrote to its standard error
    bool done = false;      // it has said that nothing is left on its host
    bool gone = false;      // its process has been reaped
    bool lost = false;      // it ended, or its connection did, before it had said so
    int wait_status = 0;
    std::string silence{};  // why it was given up
    bool expected = false;  // lost while the job was being ended anyway
    [[nodiscard]] bool over() const { return gone && handle.pipe.closed(); }
  };
  // Why the job cannot start on one host.
  struct StartFault {
    int code = 0;
    std::string text;
  };
  // Hosts that start others.
  struct Tree {
    std::vector<int> starters;  // by host, as of start_tree()
    net::JobKey key = net::JobKey::generate();
    std::vector<std::string> addresses{};
    std::unique_ptr<net::SecureListener> door{};
    bool told = false;  // that some could not
  };
  Job(const JobConfig& config, AgentSpawner& spawner, SignalSource signals, net::JobKey key);
  Status open();

  // job_start.cc
  void open_start(TimePoint now);
  void start_agents(TimePoint now);
  void assign();
  void prepare(Agent& agent);
  void start_agent(Agent& agent, TimePoint now);
  void bring_up(Agent& agent, AgentHandle handle, TimePoint now);
  void answered(Agent& agent, const Prepared& answer);
  void refused(Agent& agent, const Refused& why);
  void start_failed(Agent& agent);
  void go_on();
  Status await_probes();
  [[nodiscard]] bool probes_head_only() const;
  void order_probe(Agent& agent);
  void open_probes();
  void probed(Agent& agent, const Probed& answer);
  void choose();
  void report_plan(const LaunchPlan& plan);
  void start_ranks();
  void open_input();
  void tell_window();
  void find_twins();
  void refuse_start();
  void drop_unanswered();

  // job_tree.cc
  void plan_tree();
  void order_starts(Agent& agent, TimePoint now);
  void watch_door();
  [[nodiscard]] std::optional<std::size_t> joining(const net::Hello& peer) const;
  [[nodiscard]] std::string refusal(const net::Hello& peer) const;
  void joined(std::unique_ptr<net::SecureSocket> socket);
  void host_failed(const Agent& agent, const HostFailed& fault);
  void start_from_here(std::size_t index, const std::string& why);
  void start_late(TimePoint now);
  void take_back_from(const Agent& agent, const std::string& why);

  // job.cc
  void watch();
  void watch_agent(Agent& agent);
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  void after_round();
  bool finished();

  void receive(Agent& agent);
  void handle(Agent& agent, const Frame& frame);
  void handle_exit(const RankExited& event);
  void agent_lost(Agent& agent);
  void take_errors(Agent& agent);
  bool mpi_has_spoken();
  void beat(TimePoint now);
  void give_up(TimePoint now);
  [[nodiscard]] std::string why_gone(const Agent& agent) const;
  [[nodiscard]] std::vector<int> ranks_on(const Agent& agent) const;
  [[nodiscard]] std::string ranks_of(const Agent& agent) const;
  void tell_agent_lost(Agent& agent);
  void reap();
  void on_signals();
  void suspend();
  void resume();
  void enter_terminal();
  void flush_output();
  void interrupt(int number, const std::string& who);
  [[nodiscard]] Notice::State state() const;
  bool stops(Notice::Means means, const std::string& who);
  void give_grace(const std::string& why);
  void end_grace(TimePoint now);
  void signal_ranks(int signal, const std::vector<int>& ranks);
  void rendezvous();
  void disconnected(const net::StoreNotice& notice);
  void tell_cut_off(TimePoint now);
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
  const Log log_;                            // of strangers at our ports, through output_
  std::unique_ptr<net::StoreServer> store_;  // once it is known how many ranks there are
  std::unique_ptr<Output> output_;
  Verdict verdict_;
  CutOff cut_off_;
  std::uint64_t round_ = 0;  // of looking at the rendezvous
  Notice notice_;
  Poller poller_;
  Input input_;
  RawTerminal terminal_;
  std::vector<std::unique_ptr<Agent>> agents_;  // by host
  StartQueue queue_;
  std::optional<Tree> tree_;  // until all have come
  std::vector<StartFault> faults_;
  std::optional<ProbeListener> listener_;  // where hosts look for this one, until ranks start
  std::vector<ProbedHost> probed_hosts_;   // by host
  std::optional<ProbedHost> probed_head_;
  bool probing_ = false;
  std::vector<pid_t> not_ours_;       // children that this process had before it became distrun
  Ending sweep_{Duration::zero()};    // of what is left when the agents are gone
  std::optional<TimePoint> end_by_;   // --timeout
  std::optional<TimePoint> stop_by_;  // when ranks that were asked to stop are to have ended
  std::optional<TimePoint> kill_by_;  // when agents are to kill what is left
  std::optional<TimePoint> kill_servers_by_;
  std::optional<TimePoint> last_words_by_;  // how long MPI's launcher is waited for
  bool started_ = false;
  bool reported_ = false;   // the first cause has been shown
  bool host_lost_ = false;  // and is the first cause
  bool swept_ = false;
};

}  // namespace distrun::launcher
