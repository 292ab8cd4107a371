// One job as the head runs it. It starts the agents, sends each its plan, serves the rendezvous, shows output, and ends
// all processes. One thread and one event loop, with one state at a time. Verdict makes the decisions, and
// launcher/report the texts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/job/input.h"
#include "launcher/job/job_ending.h"
#include "launcher/job/job_running.h"
#include "launcher/job/ranks/notice.h"
#include "launcher/job/ranks/rank_monitor.h"
#include "launcher/job/screen.h"
#include "launcher/job/start/job_config.h"
#include "launcher/job/start/job_start.h"
#include "launcher/job/terminal_rank.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/signals.h"
#include "runtime/base/log.h"
#include "runtime/net/identity/world.h"

namespace distrun::launcher {

// How a job ended.
struct JobResult {
  int exit_code = 0;                     // of distrun
  std::optional<FailureReport> failure;  // none: success
  bool host_lost = false;                // a silent host was given up
};

class Job {
 public:
  // `spawner` must outlive the job.
  static Result<std::unique_ptr<Job>> create(const JobConfig& config, AgentSpawner& spawner);
  // Returns when nothing of the job is left.
  JobResult run();

 private:
  Job(const JobConfig& config, AgentSpawner& spawner, SignalSource signals);
  Status open(const JobLayout& layout);
  void begin();

  // Enters the next state if the current one has finished. The old state's object lives until the end of the round.
  void advance();
  void prepare_chosen(TimePoint now);
  void start_ranks();
  void enter_ending();

  void watch();
  [[nodiscard]] std::optional<TimePoint> deadline() const;
  void after_round();
  bool finished();
  void give_credit();
  [[nodiscard]] std::string text_of_timeout() const;
  void fail(int code, const std::string& text);

  void receive(AgentLink& agent);
  void handle(AgentLink& agent, const Frame& frame);
  void lose(AgentLink& agent);
  void explain(AgentLink& agent);
  void lose_silent(const HostLoss& loss);
  void give_up(TimePoint now);
  void reap();

  void on_signals();
  void interrupt(int number, const std::string& who);
  bool stops(Notice::Means means, const std::string& who);
  void suspend();
  void resume();

  const JobConfig config_;
  SignalSource signals_;
  const net::JobKey key_ = net::JobKey::generate();
  Screen screen_;
  const Log log_;  // warnings about unknown peers at our ports, shown through screen_
  AgentLinks agents_;
  RankMonitor ranks_;
  Notice notice_;
  Poller poller_;
  Input input_;
  TerminalRank terminal_;
  AgentSpawner& spawner_;
  std::vector<pid_t> existing_children_;  // children that existed before this process became distrun
  std::unique_ptr<JobStart> start_;       // the three states; the last one that exists is the current one
  std::unique_ptr<JobRunning> running_;
  std::unique_ptr<JobEnding> ending_;
  JobState* state_ = nullptr;
};

}  // namespace distrun::launcher
