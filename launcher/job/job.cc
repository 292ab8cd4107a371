#include "launcher/job/job.h"

#include <signal.h>

#include <utility>

#include "launcher/exit_codes.h"
#include "launcher/job/start/missing_hosts.h"
#include "launcher/plan/hints.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/descendants.h"
#include "runtime/net/bytes/open_files.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/host/host_candidates.h"

namespace distrun::launcher {
namespace {

void lose_link(AgentLink& agent, AgentLinks& agents, RankMonitor& ranks, Input& input) {
  agent.lose(ranks.ending(), Clock::now());
  agents.end_carrier(agent);
  ranks.ranks_gone(agent);
  input.lost(agent.index);
}

std::vector<int> ended_well(const RankMonitor& ranks) {
  std::vector<int> out;
  for (int rank = 0; rank < ranks.members().size(); ++rank) {
    const auto& end = ranks.verdict().end_of(rank);
    if (end && end->signal == 0 && end->exit_code == 0) out.push_back(rank);
  }
  return out;
}

}  // namespace

namespace {

// With --mpi each agent has exactly one rank.
CarrierLoss::Where place_of(const AgentLink& agent, const Membership& members) {
  const std::vector<int> ranks = members.ranks_on(agent.index);
  return {.agent = static_cast<int>(agent.index), .rank = ranks.empty() ? -1 : ranks.front(), .host = agent.host};
}

}  // namespace

Job::Job(const JobConfig& config, AgentSpawner& spawner, SignalSource signals)
    : config_(config),
      signals_(std::move(signals)),
      // The screen adds "distrun: ", so the one of the log is cut off.
      log_("warning", -1, [this](const std::string& line) { screen_.print(line.substr(line.find(' ') + 1)); }),
      agents_(
          config.plan.assignment, spawner, !config.options().hosts.mpi.empty(),
          [&screen = screen_](const std::string& text) { screen.print(text); }, duration_of(config_.host_timeout)),
      ranks_(agents_, screen_),
      spawner_(spawner) {}

Result<std::unique_ptr<Job>> Job::create(const JobConfig& config, AgentSpawner& spawner) {
  auto signals =
      SignalSource::create({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH},
                           {SIGINT, SIGHUP, SIGTSTP});
  if (!signals.ok()) return signals.status();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTIN, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);  // stty tostop: a background write would stop this process but not the agents
  ::signal(SIGXFSZ, SIG_IGN);  // an output file reached ulimit -f: treated like a full disk
  std::unique_ptr<Job> job(new Job(config, spawner, *std::move(signals)));
  if (config.assign) {
    OutputConfig until_then = config.output;
    until_then.options.directory.clear();
    DISTRUN_RETURN_IF_ERROR(job->screen_.open(until_then));
  } else {
    DISTRUN_RETURN_IF_ERROR(job->open(config));
  }
  return job;
}

// Opens the objects that depend on the number of ranks and on their hosts.
Status Job::open(const JobLayout& layout) {
  DISTRUN_RETURN_IF_ERROR(screen_.open(layout.output));
  const Assignment& assignment = layout.plan.assignment;
  const TfServers servers = layout.plan.options.frameworks.tf_servers;
  Membership members(assignment);
  net::StoreServerOptions options;
  options.job_id = layout.plan.job_id;
  options.size = members.size();
  options.host_timeout = config_.host_timeout;
  options.log = &log_;
  if (layout.several_machines) options.bind_address = "*:0";
  // Agents that are connected by now already have their descriptors.
  const bool connected = start_ != nullptr || !config_.options().hosts.mpi.empty();
  const auto ranks = static_cast<std::size_t>(options.size);
  DISTRUN_RETURN_IF_ERROR(net::make_room(ranks + (connected ? 0 : assignment.hosts.size()),
                                         "the launcher needs a connection to each of " + counted(ranks, "rank") +
                                             " and " + counted(assignment.hosts.size(), "host"))
                              .status());
  auto store = net::StoreServer::create(key_, options);
  if (!store.ok()) return store.status();
  ranks_.open(std::move(members),
              {.grace = config_.options().end.grace,
               .servers = server_ranks(layout.plan.tf_roles, servers),
               .clients = client_ranks(layout.plan.tf_roles, servers),
               .own_servers = servers == TfServers::kOwn,
               .key = layout.several_machines ? std::optional(key_) : std::nullopt,
               .host_timeout = config_.host_timeout,
               .carrier_host = config_.options().hosts.mpi.empty() ? "" : net::host_name()},
              *std::move(store));
  return {};
}

JobResult Job::run() {
  begin();
  while (!finished()) {
    watch();
    if (const Status status = poller_.wait(deadline()); !status.ok()) fail(exit_code::kInternal, status.message());
    after_round();
  }
  terminal_.leave();
  ending_->report_end(!config_.output.options.all_errors);
  JobResult out{.exit_code = ranks_.verdict().exit_code(), .failure = ending_->failure()};
  if (ranks_.verdict().rank_failed() && out.failure->hint.empty()) {
    screen_->print(hint_at_early_ends(config_.plan.script.strategies, ended_well(ranks_)));
  }
  screen_.flush(poller_, signals_);
  if (out.exit_code == 0 && screen_->lost()) {
    out = {.exit_code = exit_code::kOutputLost, .failure = FailureReport{.cause = {.kind = CauseKind::kOutputLost}}};
  }
  out.host_lost = agents_.any_given_up();
  return out;
}

void Job::begin() {
  // This comes before the first child is started. Children that exist now do not belong to the job and must never be
  // touched.
  existing_children_ = current_children();
  become_subreaper();
  start_ = std::make_unique<JobStart>(config_, key_, agents_, spawner_, log_,
                                      [&screen = screen_](const std::string& text) { screen.print(text); });
  state_ = start_.get();
  if (config_.assign) {
    start_->ask(Clock::now());
  } else {
    start_->prepare(config_, ranks_.store_address(), Clock::now());
  }
  advance();
}

void Job::advance() {
  if (state_ == start_.get() && !ranks_.ending()) {
    if (start_->outcome() == JobStart::Outcome::kReady) start_ranks();
    if (start_->outcome() == JobStart::Outcome::kRefused) {
      ranks_.break_off(start_->refusal().code, start_->refusal().text);
    }
  }
  if (ranks_.ending()) enter_ending();
}

// Called at the end of a round, because it destroys the links of hosts that get no ranks.
void Job::prepare_chosen(TimePoint now) {
  if (state_ != start_.get() || start_->outcome() != JobStart::Outcome::kChosen || ranks_.ending()) return;
  if (const Status status = open(start_->layout()); !status.ok()) {
    const bool usage = status.code() == Errc::kInvalidArgument;
    return fail(usage ? exit_code::kUsage : exit_code::kUnusable, status.message());
  }
  start_->prepare(JobLayout(start_->layout()), ranks_.store_address(), now);
  advance();
}

void Job::start_ranks() {
  screen_->begin();
  start_->start_ranks();
  if (const auto store = net::parse_address(start_->layout().plan.store); store.ok()) {
    agents_.set_own_address(store->host);
  }
  running_ = std::make_unique<JobRunning>(
      ranks_, input_, screen_, config_.options().end.stop_limit(), config_.preempt_signal,
      hint_at_failure(start_->layout().plan, static_cast<std::size_t>(ranks_.members().size())));
  state_ = running_.get();
  const InputRequest& input = config_.options().output.input;
  std::set<std::size_t> readers;
  for (int rank = 0; rank < ranks_.members().size(); ++rank) {
    if (input.of(rank) != RankInput::kNone) readers.insert(ranks_.members().host_of(rank));
  }
  input_.open(readers);
  if (input.terminal >= 0) terminal_.open(agents_[ranks_.members().host_of(input.terminal)]);
}

void Job::enter_ending() {
  if (ending_) return;
  ending_ = std::make_unique<JobEnding>(agents_, ranks_, input_, screen_, running_ != nullptr, existing_children_,
                                        running_ ? running_->hint() : "");
  state_ = ending_.get();
}

void Job::fail(int code, const std::string& text) {
  ranks_.break_off(code, text);
  advance();
}

void Job::watch() {
  poller_.clear();
  poller_.watch(signals_.fd(), POLLIN, [this](short) { on_signals(); });
  if (const int carrier = spawner_.carrier(); carrier >= 0) {
    // When MPI's launcher ends, the processes that it started end too.
    poller_.watch(carrier, POLLIN, [this](short) {
      const auto end = spawner_.carrier_end();
      if (!end) return;
      if (CarrierLoss* const parts = ranks_.carrier(); parts != nullptr && state_ == running_.get()) {
        parts->launcher_ended(*end, Clock::now());
      }
      if (state_ == start_.get()) fail(exit_code::kUnusable, carrier_text(*end) + " while the job was starting");
    });
  }
  spawner_.watch(poller_);
  ranks_.watch(poller_);
  state_->watch(poller_);
  agents_.watch(poller_, !screen_->behind(), [this](AgentLink& agent) { receive(agent); });
  screen_->watch(poller_);
  input_.watch(poller_, [this](const std::set<std::size_t>& hosts, const std::vector<std::byte>& bytes) {
    const ToAgent type = bytes.empty() ? ToAgent::kInputEnd : ToAgent::kInput;
    for (const std::size_t host : hosts) agents_[host].send(type, bytes);
  });
}

std::optional<TimePoint> Job::deadline() const {
  auto next = earlier(earlier(screen_->deadline(), input_.deadline()), earlier(ranks_.deadline(), state_->deadline()));
  if (!ranks_.ending() && !ranks_.hangs().looks_last()) next = earlier(next, config_.end_by);
  return earlier(next, agents_.deadline(ranks_.kill_by()));
}

void Job::after_round() {
  const TimePoint now = Clock::now();
  state_->tick(now);
  advance();
  prepare_chosen(now);
  // Silence is judged at the time of the last wait: callbacks may have taken long, and nothing was read since.
  if (const auto loss = agents_.look(poller_.woke())) lose_silent(*loss);
  give_up(poller_.woke());
  screen_->tick(now);
  give_credit();
  if (input_.look(now)) terminal_.enter();
  for (AgentLink* const agent : ranks_.tick(now)) {
    agent->silence = "it has not answered for " + seconds_text(MissedRanks::kAnswerTime / std::chrono::seconds(1)) +
                     " s, and another rank has lost its connection to one there";
    lose(*agent);
    agent->handle.pipe.abandon();
  }
  if (const auto why = ranks_.take_stop();
      why && config_.preempt_signal != 0 && notice_.at_rank(ranks_.state()) == Notice::Means::kStop && running_) {
    running_->give_grace(*why, now);
  }
  if (screen_->reader_gone()) ranks_.reader_gone();
  if (config_.end_by && now >= *config_.end_by && !ranks_.ending()) {
    const std::string text = text_of_timeout();
    if (ranks_.time_out(now, running_ ? "" : text)) screen_.print(text);
  }
  advance();
  if (state_ != start_.get()) start_.reset();
}

std::string Job::text_of_timeout() const {
  const std::string seconds = seconds_text(config_.options().end.timeout) + " s";
  if (running_ && !config_.options().end.check) {
    return "the job has run for " + seconds + ", which is its --timeout; ending it";
  }
  const std::string missing = missing_hosts(agents_, [this](const AgentLink& agent) {
    return running_ ? ranks_.all_came(agent) : start_->has_answered(agent);
  });
  if (config_.options().end.check) {
    return "distrun check has not finished within " + seconds + "; --timeout gives it more time: " +
           (missing.empty() ? "all hosts have answered, and are still measuring" : missing);
  }
  return "the job has not started within " + seconds + ", which is its --timeout: " +
         (missing.empty() ? "all hosts have answered, and are still preparing" : missing);
}

void Job::give_credit() {
  for (Credit& credit : screen_->take_credits()) {
    const std::size_t host = ranks_.members().host_of(credit.rank);
    credit.rank = static_cast<int>(ranks_.members().worker_of(credit.rank));
    agents_[host].send(ToAgent::kCredit, encode(credit));
  }
}

bool Job::finished() {
  const CarrierLoss* const parts = ranks_.carrier();
  const bool awaits_cause = parts != nullptr && parts->deadline();
  if (state_ == running_.get() && agents_.all_over() && !awaits_cause) {
    ranks_.tick(Clock::now(), true);
    enter_ending();
  }
  if (!ending_) return false;
  if (agents_.all_over()) reap();
  return ending_->finished(Clock::now());
}

void Job::receive(AgentLink& agent) {
  const std::vector<Frame> frames = agent.handle.pipe.receive();
  if (!frames.empty() || !agent.handle.pipe.closed()) agent.count_as_alive(Clock::now());
  for (const Frame& frame : frames) handle(agent, frame);
  if (!agent.handle.pipe.closed() || agent.done()) return;
  if (const auto loss = agents_.ended(agent, Clock::now())) return lose_silent(*loss);
  lose(agent);
}

void Job::handle(AgentLink& agent, const Frame& frame) {
  switch (static_cast<FromAgent>(frame.type)) {
    case FromAgent::kAlive: {
      const auto heartbeat = decode<Heartbeat>(frame.payload);
      if (!heartbeat.ok()) return ranks_.break_off(exit_code::kInternal, heartbeat.status().message());
      return agent.answer(*heartbeat);
    }
    case FromAgent::kNote:
      return screen_.print(printable_lines(net::as_text(frame.payload)));
    case FromAgent::kCarrierNews:
      if (CarrierLoss* const parts = ranks_.carrier(); parts != nullptr) {
        const auto news = decode<CarrierNews>(frame.payload);
        if (news.ok()) parts->add_news(*news, place_of(agent, ranks_.members()), Clock::now());
      }
      return;
    case FromAgent::kPreempted: {
      const std::string who = "the agent on host " + agent.host;
      if (!stops(notice_.at_agent(ranks_.state()), who)) interrupt(config_.preempt_signal, who);
      return;
    }
    case FromAgent::kStacksAsked:
      if (running_) ranks_.show_stacks(Clock::now());
      return;
    case FromAgent::kDone:
      agent.state = AgentLink::State::kDone;
      agent.end_deadline.done(Clock::now());
      // An agent on a connection waits for this close, so that its last messages are not lost.
      return agent.handle.pipe.close_out();
    default:
      break;
  }
  advance();  // a message of the rendezvous in this round may have ended the job
  const auto known = state_->on(agent, frame);
  if (!known.ok()) {
    ranks_.break_off(exit_code::kInternal, known.status().message());
  } else if (!*known) {
    ranks_.break_off(exit_code::kInternal, "the agent on host " + agent.host + " sent message " +
                                               std::to_string(frame.type) +
                                               ", which is unknown; install the same version of distrun on all hosts");
  }
  advance();
}

// The agent, or its connection, ended before it had reported that nothing is left on its host.
void Job::lose(AgentLink& agent) {
  advance();
  lose_link(agent, agents_, ranks_, input_);
  CarrierLoss* const parts = ranks_.carrier();
  if (parts != nullptr && state_ == running_.get() && agent.silence.empty()) {
    return parts->wrapper_lost(place_of(agent, ranks_.members()), 0, Clock::now());
  }
  if (agent.gone() || !agent.silence.empty()) explain(agent);
  if (agent.lost()) state_->on_lost(agent);
  advance();
}

void Job::explain(AgentLink& agent) {
  agents_.take_errors(agent);
  state_->on_explained(agent);
  advance();
}

// Gives all these hosts up at once, so that one line names them all.
void Job::lose_silent(const HostLoss& loss) {
  advance();
  for (AgentLink* const agent : loss.links) {
    agent->silence = loss.why;
    lose_link(*agent, agents_, ranks_, input_);
  }
  state_->on_silent(loss);
  for (AgentLink* const agent : loss.links) agent->handle.pipe.abandon();
  advance();
}

void Job::give_up(TimePoint now) {
  for (AgentLink* const agent : agents_.unfinished(now)) {
    lose(*agent);
    agent->handle.pipe.abandon();
  }
  if (screen_->behind()) {
    for (const auto& agent : agents_.all()) agent->end_deadline.alive(now);
  }
  for (AgentLink* const agent : agents_.overdue(now, ranks_.kill_by())) {
    if (!agent->done()) {
      agent->silence = "it has not ended its ranks when it was told to, and says nothing (is it stopped?)";
      screen_.print("the agent on host " + agent->host + " is given up: " + agent->silence);
      lose(*agent);
    }
    agent->handle.process.signal(SIGKILL);
    agent->handle.pipe.abandon();
  }
}

void Job::reap() {
  bool none_left = false;
  for (const Reaped& child : reap_children(none_left)) {
    AgentLink* const agent = agents_.reaped(child);
    if (agent != nullptr && agent->lost() && agent->silence.empty()) explain(*agent);
  }
}

}  // namespace distrun::launcher
