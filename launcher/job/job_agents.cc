// The job's conversation with its agents, and what it tells the user about ranks.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "launcher/job/job.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/descendants.h"

namespace distrun::launcher {
namespace {

constexpr std::size_t kNoiseShown = 200;
constexpr std::size_t kMostPassedOn = std::size_t{256} << 10;  // of what has come since the last look
constexpr double kLastWordsSeconds = 2;
constexpr int kNoRank = -1;

std::string lost_text(const std::string& host, const std::string& silence) {
  return "host " + host + " is lost" + (silence.empty() ? "" : ": " + silence);
}

}  // namespace

void Job::receive(Agent& agent) {
  agent.heart.heard(Clock::now());
  agent.patience.heard(Clock::now());
  for (const Frame& frame : agent.handle.pipe.receive()) handle(agent, frame);
  if (agent.handle.pipe.closed() && !agent.done) agent_lost(agent);
}

void Job::handle(Agent& agent, const Frame& frame) {
  const auto use = [this](auto decoded, auto action) {
    if (decoded.ok()) {
      action(*decoded);
    } else {
      fail_start(exit_code::kInternal, decoded.status().message());
    }
  };
  switch (static_cast<FromAgent>(frame.type)) {
    case FromAgent::kPrepared:
      return use(decode<Prepared>(frame.payload), [&](const Prepared& answer) { answered(agent, answer); });
    case FromAgent::kRefused:
      return use(decode<Refused>(frame.payload), [&](const Refused& why) { refused(agent, why); });
    case FromAgent::kProbed:
      return use(decode<Probed>(frame.payload), [&](const Probed& answer) { probed(agent, answer); });
    case FromAgent::kAlive:
      return;
    case FromAgent::kStarted:
      return use(decode<RankStarted>(frame.payload), [&](const RankStarted& event) { verdict_.started(event); });
    case FromAgent::kOutput:
      return use(decode<StreamBytes>(frame.payload),
                 [&](const StreamBytes& bytes) { output_->write(bytes, Clock::now()); });
    case FromAgent::kExited:
      return use(decode<RankExited>(frame.payload), [&](const RankExited& event) { handle_exit(event); });
    case FromAgent::kDrained: {
      net::WireReader reader(frame.payload);
      const int rank = reader.i32();
      if (!reader.finish("drained").ok() || rank < 0 || rank >= static_cast<int>(config_.output.hosts.size())) return;
      output_->finish(rank, Clock::now());
      if (verdict_.rank_failed() && verdict_.failure()->rank == rank) report_first_cause(true);
      return;
    }
    case FromAgent::kInputTaken:
      return use(decode<InputTaken>(frame.payload),
                 [&](const InputTaken& answer) { input_.taken(agent.index, answer.more); });
    case FromAgent::kNote:
      return output_->say(std::string(net::as_text(frame.payload)));
    case FromAgent::kPreempted: {
      const std::string who = "the agent on host " + agent.host;
      if (!stops(notice_.at_agent(state()), who)) interrupt(config_.preempt_signal, who);
      return;
    }
    case FromAgent::kHostFailed:
      return use(decode<HostFailed>(frame.payload), [&](const HostFailed& fault) { host_failed(agent, fault); });
    case FromAgent::kDone:
      agent.done = true;
      agent.patience.done(Clock::now());
      // One on a connection waits for this end, lest its last words are lost with it.
      return agent.handle.pipe.close_out();
  }
  fail_start(exit_code::kInternal, "the agent on host " + agent.host + " sent message " + std::to_string(frame.type) +
                                       ", which is unknown; install the same version of distrun on all hosts");
}

void Job::handle_exit(const RankExited& event) {
  // What the rank said to the rendezvous before it ended ("I leave", "I fail because") has arrived by now, but perhaps
  // not been read yet.
  rendezvous();
  cut_off_.explained(event.rank);
  act(verdict_.exited(event, round_));
}

void Job::agent_lost(Agent& agent) {
  agent.done = true;
  agent.lost = true;
  for (const int rank : ranks_on(agent)) cut_off_.explained(rank);
  input_.taken(agent.index, false);
  agent.patience.done(Clock::now());
  // Whatever is wrong with an agent here: only once it is gone does what it looked after become ours. What carries one
  // from elsewhere gets a moment to say why it ends.
  if (!agent.handle.remote || !agent.silence.empty()) agent.handle.process.signal(SIGKILL);
  agent.handle.pipe.close_out();
  agent.expected = verdict_.ending();
  if (agent.gone || !agent.silence.empty()) tell_agent_lost(agent);
  if (!started_) return;
  act(verdict_.host_lost(static_cast<int>(agent.index), lost_text(agent.host, agent.silence)));
  if (agent.expected) return;
  host_lost_ = true;
  output_->keep_back_all_but(kNoRank);
}

void Job::tell_agent_lost(Agent& agent) {
  take_errors(agent);
  if (agent.expected) return;
  if (!started_) return start_failed(agent);
  if (agent.handle.remote) {
    return output_->say("host " + agent.host + " is lost: " + why_gone(agent) + ". " + ranks_of(agent) +
                        " counted dead");
  }
  output_->say("the agent on host " + agent.host + " (pid " + std::to_string(agent.handle.process.pid()) + ") " +
               why_gone(agent) + ". " + ranks_of(agent) + " ended");
}

std::string Job::why_gone(const Agent& agent) const {
  if (!agent.silence.empty()) return agent.silence;
  if (agent.handle.process.pid() < 0) return "its connection ended";
  const Status& fault = agent.handle.pipe.fault();
  if (!fault.ok()) return fault.message() + ": " + in_quotes(agent.handle.pipe.noise().substr(0, kNoiseShown));
  const bool by_signal = WIFSIGNALED(agent.wait_status);
  const int number = by_signal ? WTERMSIG(agent.wait_status) : 0;
  const int code = by_signal ? 0 : WEXITSTATUS(agent.wait_status);
  const std::string end = (by_signal ? "was " : "") + text_of(cause_of_end(number, code));
  if (!agent.handle.remote) return end;
  if (by_signal) return "what carries its agent " + end;
  const bool by_ssh = spawner_.ssh(agent.host, agent.user) != nullptr;
  return start_failure(code, agent.printed + agent.handle.pipe.noise(), by_ssh);
}

std::vector<int> Job::ranks_on(const Agent& agent) const {
  std::vector<int> ranks;
  for (const Place& place : config_.plan.assignment.places) {
    if (place.host == static_cast<int>(agent.index)) ranks.push_back(place.rank);
  }
  return ranks;
}

// "Rank 2 there is", "Ranks 2-3 there are".
std::string Job::ranks_of(const Agent& agent) const {
  const std::vector<int> ranks = ranks_on(agent);
  return (ranks.size() == 1 ? "Rank " : "Ranks ") + ranges(ranks) + " there " + (ranks.size() == 1 ? "is" : "are");
}

// The end of it explains a failure. What MPI's launcher prints is for the user at once: Open MPI's ranks leave it to
// mpirun to say which call of MPI has failed. A line without its end waits for it.
void Job::take_errors(Agent& agent) {
  if (!config_.plan.frameworks.mpi) return read_last_words(agent.handle.errors, agent.printed);
  read_last_words(agent.handle.errors, agent.printed, kMostPassedOn);
  const std::size_t end = agent.handle.errors.valid() ? agent.printed.rfind('\n') + 1 : agent.printed.size();
  if (end == 0) return;
  output_->say("MPI's launcher says:\n" + agent.printed.substr(0, end));
  agent.printed.erase(0, end);
}

// When the ranks have ended MPI's launcher may have something to say about that, and then ends. False: not yet, and
// there is time.
bool Job::mpi_has_spoken() {
  const auto mpi =
      std::find_if(agents_.begin(), agents_.end(), [](const auto& agent) { return agent->handle.errors.valid(); });
  if (!config_.plan.frameworks.mpi || mpi == agents_.end()) {
    last_words_by_.reset();
    return true;
  }
  if (!last_words_by_) last_words_by_ = deadline_after(kLastWordsSeconds);
  if (Clock::now() >= *last_words_by_) {
    read_last_words((*mpi)->handle.errors, (*mpi)->printed, kMostPassedOn);
    (*mpi)->handle.errors.reset();
    take_errors(**mpi);  // the rest, though its line may have no end
  }
  return false;
}

void Job::beat(TimePoint now) {
  for (auto& agent : agents_) {
    if (!agent->up || agent->done || agent->handle.pipe.closed()) continue;
    if (agent->heart.speak(now)) agent->handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kAlive), encode(Alive{}));
    if (!agent->heart.silent(now)) continue;
    agent->silence = "nothing has come from it for " + seconds_text(kHeadWaits * config_.host_timeout) + " s";
    agent_lost(*agent);
    agent->handle.pipe.abandon();
  }
}

// Agents that do not do what they were told to, or whose carriers stay when all is over.
void Job::give_up(TimePoint now) {
  for (auto& agent : agents_) {
    if (output_->behind()) agent->patience.heard(now);
    const auto end = agent->patience.end(kill_by_);
    if (!agent->up || agent->over() || !end || now < *end) continue;
    if (!agent->done) {
      agent->silence = "it has not ended its ranks when it was told to, and says nothing (is it stopped?)";
      output_->say("the agent on host " + agent->host + " is given up: " + agent->silence);
      agent_lost(*agent);
    }
    agent->handle.process.signal(SIGKILL);
    agent->handle.pipe.abandon();
  }
}

void Job::report_first_cause(bool exit_known) {
  if (reported_ || !verdict_.rank_failed()) return;
  reported_ = true;
  FailureReport failure = *verdict_.failure();
  failure.last_lines = output_->last_lines(failure.rank);
  if (exit_known) failure.exit_code = verdict_.exit_code();
  output_->say(first_cause_report(failure));
}

void Job::report_end() {
  report_first_cause(true);
  if (!verdict_.rank_failed() && !host_lost_) return;
  const int first = verdict_.failure() ? verdict_.failure()->rank : kNoRank;
  std::vector<Follower> followers;
  for (int rank = 0; rank < static_cast<int>(config_.output.hosts.size()); ++rank) {
    const auto& end = verdict_.end_of(rank);
    if (rank == first || !end) continue;
    if (end->signal == 0 && end->exit_code == 0) {
      output_->show_kept_back(rank, Clock::now());
      continue;
    }
    followers.push_back({.rank = rank,
                         .cause = cause_of_end(end->signal, end->exit_code, end->out_of_memory),
                         .last_line = output_->last_word(rank),
                         .ended_by_us = end->by_agent});
  }
  output_->say(follow_up_report(followers, config_.output.keep_back));
}

}  // namespace distrun::launcher
