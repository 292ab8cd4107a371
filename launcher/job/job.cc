#include "launcher/job/job.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/descendants.h"
#include "runtime/net/bytes/open_files.h"

namespace distrun::launcher {
namespace {

std::vector<int> hosts_of(const Assignment& assignment) {
  std::vector<int> out;
  for (const Place& place : assignment.places) out.push_back(place.host);
  return out;
}

}  // namespace

Job::Job(const JobConfig& config, AgentSpawner& spawner, SignalSource signals, net::JobKey key)
    : config_(config),
      spawner_(spawner),
      signals_(std::move(signals)),
      key_(key),
      // Its lines begin with "distrun ", and ours with "distrun: ".
      log_("warning", -1, [this](const std::string& line) { output_->say(line.substr(line.find(' ') + 1)); }),
      verdict_(Verdict::Config{}),
      queue_(config.plan.assignment.hosts.size(), config.start) {}

Result<std::unique_ptr<Job>> Job::create(const JobConfig& config, AgentSpawner& spawner) {
  auto signals =
      SignalSource::create({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH},
                           {SIGINT, SIGHUP, SIGQUIT, SIGTSTP});
  if (!signals.ok()) return signals.status();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTIN, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);  // stty tostop: who writes in the background would be stopped, and no agent told
  ::signal(SIGXFSZ, SIG_IGN);  // what we write has grown to ulimit -f: as a full disk
  std::unique_ptr<Job> job(new Job(config, spawner, *std::move(signals), net::JobKey::generate()));
  if (config.assign) {
    OutputOptions until_then = config.output;
    until_then.directory.clear();
    auto output = Output::create(until_then);
    if (!output.ok()) return output.status();
    job->output_ = *std::move(output);
  } else {
    DISTRUN_RETURN_IF_ERROR(job->open());
  }
  return job;
}

// What depends on the number of ranks and on their hosts.
Status Job::open() {
  const FrameworkRequest& frameworks = config_.plan.frameworks;
  verdict_ = Verdict({.hosts = config_.output.hosts,
                      .host_of = hosts_of(config_.plan.assignment),
                      .grace = config_.grace,
                      .servers = server_ranks(frameworks.tf_roles, frameworks.tf_servers),
                      .clients = client_ranks(frameworks.tf_roles, frameworks.tf_servers)});
  auto output = Output::create(config_.output);
  if (!output.ok()) return output.status();
  if (output_) (*output)->follow(*output_);
  output_ = *std::move(output);
  net::StoreServerOptions options;
  options.job_id = config_.plan.job_id;
  options.size = static_cast<int>(config_.output.hosts.size());
  options.host_timeout = config_.host_timeout;
  options.log = &log_;
  if (config_.several_machines) options.bind_address = "*:0";
  // Agents that are connected by now have their descriptors.
  const bool connected = !agents_.empty() || config_.plan.frameworks.mpi;
  const auto connections =
      static_cast<std::size_t>(options.size) + (connected ? 0 : config_.plan.assignment.hosts.size());
  DISTRUN_RETURN_IF_ERROR(net::make_room(connections, "the launcher needs a connection to each of " +
                                                          counted(config_.output.hosts.size(), "rank") + " and " +
                                                          counted(config_.plan.assignment.hosts.size(), "host"))
                              .status());
  auto store = net::StoreServer::create(key_, options);
  if (!store.ok()) return store.status();
  store_ = *std::move(store);
  config_.plan.store = store_->address();
  return {};
}

template <class Message>
void Job::tell_all(ToAgent type, const Message& message) {
  for (auto& agent : agents_) agent->handle.pipe.send(static_cast<std::uint8_t>(type), encode(message));
}

int Job::run() {
  end_by_ = config_.end_by;
  open_start(Clock::now());
  while (!finished()) {
    watch();
    if (const Status status = poller_.wait(deadline()); !status.ok())
      fail_start(exit_code::kInternal, status.message());
    after_round();
  }
  terminal_.leave();
  report_end();
  flush_output();
  const int code = verdict_.exit_code();
  return code == 0 && output_->lost() ? exit_code::kOutputLost : code;
}

void Job::watch() {
  poller_.clear();
  poller_.watch(signals_.fd(), POLLIN, [this](short) { on_signals(); });
  if (store_) poller_.watch(store_->fd(), POLLIN, [this](short) { rendezvous(); });
  if (listener_) listener_->watch(poller_);
  watch_door();
  for (auto& agent : agents_) {
    if (agent->up) watch_agent(*agent);
  }
  output_->watch(poller_);
  input_.watch(poller_, [this](const std::set<std::size_t>& hosts, const std::vector<std::byte>& bytes) {
    const ToAgent type = bytes.empty() ? ToAgent::kInputEnd : ToAgent::kInput;
    for (const std::size_t host : hosts) agents_[host]->handle.pipe.send(static_cast<std::uint8_t>(type), bytes);
  });
}

void Job::watch_agent(Agent& agent) {
  Agent* const it = &agent;
  if (agent.handle.errors.valid() && !output_->behind()) {
    poller_.watch(agent.handle.errors.get(), POLLIN, [this, it](short) { take_errors(*it); });
  }
  FramePipe& pipe = agent.handle.pipe;
  if (pipe.closed()) return;
  poller_.watch(pipe.in(), POLLIN, [this, it](short) { receive(*it); });
  if (pipe.wants_write()) poller_.watch(pipe.out(), POLLOUT, [&pipe](short) { pipe.flush(); });
}

std::optional<TimePoint> Job::deadline() const {
  const auto timeout = verdict_.ending() ? std::nullopt : end_by_;
  auto next = earlier(earlier(output_->deadline(), timeout), earlier(sweep_.deadline(), input_.deadline()));
  next = earlier(earlier(earlier(next, cut_off_.deadline()), kill_servers_by_), last_words_by_);
  if (!verdict_.ending()) next = earlier(next, stop_by_);
  if (queue_.pending() && !verdict_.ending()) next = earlier(next, queue_.deadline());
  for (const auto& agent : agents_) {
    if (!agent->up || agent->over()) continue;
    if (!agent->done && agent->heart.on()) next = earlier(next, agent->heart.deadline());
    next = earlier(next, agent->patience.end(kill_by_));
  }
  return next;
}

void Job::after_round() {
  const TimePoint now = Clock::now();
  if (queue_.pending() && !verdict_.ending()) start_agents(now);
  if (!queue_.pending()) tree_.reset();
  if (config_.assign) assign();
  if (verdict_.ending() && !started_) drop_unanswered();
  // Callbacks may have taken long, and nothing has been read since.
  beat(poller_.woke());
  give_up(poller_.woke());
  output_->tick(now);
  for (const Credit& credit : output_->take_credits()) {
    const auto host =
        static_cast<std::size_t>(config_.plan.assignment.places[static_cast<std::size_t>(credit.rank)].host);
    agents_[host]->handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kCredit), encode(credit));
  }
  if (input_.look(now)) enter_terminal();
  tell_cut_off(now);
  if (output_->reader_gone()) act(verdict_.reader_gone());
  if (end_by_ && now >= *end_by_ && !verdict_.ending()) {
    output_->say("the job has run for " + seconds_text(config_.timeout) + " s, which is its --timeout; ending it");
    act(verdict_.timed_out());
  }
  end_grace(now);
  if (kill_servers_by_ && now >= *kill_servers_by_) {
    kill_servers_by_.reset();
    signal_ranks(SIGKILL, verdict_.servers_left());
  }
}

void Job::signal_ranks(int signal, const std::vector<int>& ranks) {
  if (!ranks.empty()) tell_all(ToAgent::kSignal, SignalRanks{.signal = signal, .whole_group = true, .ranks = ranks});
}

// All agents have ended. Normally nothing is left then; after the death of an agent the kernel has given us what it
// looked after, and that is ended here.
bool Job::finished() {
  if (queue_.pending() && !verdict_.ending()) return false;  // an agent that is down may be due to be started again
  if (!std::all_of(agents_.begin(), agents_.end(), [](const auto& agent) { return !agent->up || agent->over(); })) {
    return false;
  }
  if (!mpi_has_spoken()) return false;
  if (swept_) return true;
  reap();
  const std::vector<ProcessInfo> rest = descendants(not_ours_);
  const TimePoint now = Clock::now();
  sweep_.kill_now(now);
  const Ending::Actions actions = sweep_.next({.started = true, .any_child = !rest.empty(), .now = now});
  if (actions.kill_all) signal_processes(rest, SIGKILL);
  if (actions.give_up) output_->say(unkillable(rest));
  swept_ = actions.done || actions.give_up;
  const bool lost = std::any_of(agents_.begin(), agents_.end(), [](const auto& agent) { return agent->lost; });
  if (swept_ && lost) end_abandoned_cgroups("/");
  return swept_;
}

void Job::reap() {
  bool none_left = false;
  for (const Reaped& child : reap_children(none_left)) {
    for (auto& agent : agents_) {
      if (!agent->up || agent->gone || agent->handle.process.pid() != child.pid) continue;
      agent->gone = true;
      agent->wait_status = child.status;
      agent->handle.process.reaped();
      if (agent->lost && agent->silence.empty()) tell_agent_lost(*agent);
      break;
    }
  }
}

void Job::on_signals() {
  for (const int number : signals_.take()) {
    if (number == config_.preempt_signal && stops(notice_.at_launcher(number, state()), "the launcher")) continue;
    switch (number) {
      case SIGCHLD:
        reap();
        break;
      case SIGUSR1:
      case SIGUSR2:
        tell_all(ToAgent::kSignal, SignalRanks{.signal = number});
        break;
      case SIGTSTP:
        suspend();
        break;
      case SIGWINCH:
        tell_window();
        break;
      case SIGCONT:
        resume();
        break;
      default:
        interrupt(number, "distrun");
    }
  }
}

void Job::enter_terminal() {
  if (config_.plan.input.terminal >= 0) terminal_.enter();
}

// A signal that asks for the end of the job.
void Job::interrupt(int number, const std::string& who) {
  const bool first = !verdict_.ending();
  act(verdict_.interrupted(number, Clock::now()));
  if (verdict_.interrupted_again()) output_->hurry();
  if (!first) return;
  const std::string grace = seconds_text(config_.grace) + " s to end";
  if (number == SIGINT) {
    return output_->say("interrupted; ranks get INT and " + grace +
                        ", TERM after half of it (Ctrl-C again kills them now)");
  }
  output_->say(who + " got " + signal_name(number) + "; ranks get TERM and " + grace);
}

Notice::State Job::state() const { return {.ending = verdict_.ending(), .any_in_session = verdict_.any_in_session()}; }

// --preempt-signal, to this process or an agent: true if it means no more than that ranks are to stop by themselves.
bool Job::stops(Notice::Means means, const std::string& who) {
  if (means != Notice::Means::kStop) return means == Notice::Means::kKnown;
  const std::string why = who + " got " + signal_name(config_.preempt_signal);
  store_->publish({.kind = net::JobEvent::Kind::kStopAsked, .cause = why});
  give_grace(why);
  return true;
}

void Job::give_grace(const std::string& why) {
  if (config_.stop_limit) stop_by_ = deadline_after(*config_.stop_limit);
  output_->say(why + ": all ranks are to stop at the same step, and have " +
               (config_.stop_limit ? seconds_text(*config_.stop_limit) + " s to end (--grace)"
                                   : "as long to end as its sender gives them (--grace would set a limit)"));
}

void Job::end_grace(TimePoint now) {
  if (!stop_by_ || now < *stop_by_ || verdict_.ending()) return;
  output_->say("ranks that were to stop have not ended within " + seconds_text(*config_.stop_limit) +
               " s; ending the job");
  JobActions actions = verdict_.interrupted(config_.preempt_signal, now);
  constexpr std::uint32_t kAfterTerm = 2000;
  actions.stop->kill_after = std::min(actions.stop->kill_after, kAfterTerm);
  act(actions);
}

// Ctrl-Z: ranks are in sessions of their own, where the terminal's stop does not reach them.
void Job::suspend() {
  tell_all(ToAgent::kSignal, SignalRanks{.signal = SIGSTOP, .whole_group = true});
  // The last word: any other that an agent reads later by itself would mean that the lease counts again.
  tell_all(ToAgent::kAlive, Alive{.hold = true});
  for (auto& agent : agents_) agent->handle.pipe.flush();
  terminal_.leave();
  stop_as_asked();
  // Nothing was read meanwhile.
  for (auto& agent : agents_) {
    agent->heart.heard(Clock::now());
    agent->patience.heard(Clock::now());
  }
  // At once, whether this one was stopped or not: who was not gets no SIGCONT.
  resume();
}

void Job::resume() {
  tell_all(ToAgent::kAlive, Alive{});
  tell_all(ToAgent::kSignal, SignalRanks{.signal = SIGCONT, .whole_group = true});
  input_.resume();
  enter_terminal();
}

// Waits for readers and disks as long as it takes, as any program's last write does, unless a signal asks for the end.
void Job::flush_output() {
  for (;;) {
    output_->finish_all();
    output_->tick(Clock::now());
    if (!output_->pending()) return;
    poller_.clear();
    poller_.watch(signals_.fd(), POLLIN, [this](short) {
      for (const int number : signals_.take()) {
        if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT) output_->hurry();
      }
    });
    output_->watch(poller_);
    if (output_->pending() && !poller_.wait(output_->deadline()).ok()) return;
  }
}

void Job::rendezvous() {
  ++round_;
  store_->progress(Clock::now());
  for (const net::StoreNotice& notice : store_->take_notices()) {
    switch (notice.kind) {
      case net::StoreNotice::Kind::kJoined:
        cut_off_.explained(notice.rank);
        act(verdict_.joined(notice.rank));
        break;
      case net::StoreNotice::Kind::kLeft:
        act(verdict_.left(notice.rank));
        break;
      case net::StoreNotice::Kind::kFailed:
        act(verdict_.reported(notice.rank, notice.text));
        break;
      case net::StoreNotice::Kind::kLeftEarly:
        act(verdict_.left_early(notice.rank, notice.text));
        break;
      case net::StoreNotice::Kind::kStalled:
        act(verdict_.stalled(notice.rank, notice.text));
        break;
      case net::StoreNotice::Kind::kRefused:
        output_->say(notice.text);
        break;
      case net::StoreNotice::Kind::kStopping:
        if (config_.preempt_signal == 0 || notice_.at_rank(state()) != Notice::Means::kStop) break;
        give_grace(notice.text);
        break;
      case net::StoreNotice::Kind::kDisconnected:
        // Whose connection ends later may know that the job does.
        if (verdict_.in_session(notice.rank) && !verdict_.ending()) disconnected(notice);
        break;
    }
  }
}

void Job::disconnected(const net::StoreNotice& notice) {
  const auto rank = static_cast<std::size_t>(notice.rank);
  const auto host = static_cast<std::size_t>(config_.plan.assignment.places[rank].host);
  const LostConnection lost{.rank = notice.rank,
                            .host = config_.output.hosts[rank],
                            .remote = agents_[host]->handle.remote,
                            .started = verdict_.pid_of(notice.rank),
                            .pid = notice.pid,
                            .how = notice.text};
  cut_off_.disconnected(notice.rank, lost_connection_report(lost), Clock::now());
  verdict_.disconnected(notice.rank, round_);
}

// Not once the job ends for another reason than a rank's failure, which this may have caused.
void Job::tell_cut_off(TimePoint now) {
  for (const auto& [rank, text] : cut_off_.take(now)) {
    if (!verdict_.ending() || verdict_.rank_failed()) output_->say(text);
    act(verdict_.runs_on(rank));
  }
}

void Job::act(const JobActions& actions) {
  if (actions.publish) store_->publish(*actions.publish);
  if (actions.interrupt_ranks) {
    tell_all(ToAgent::kSignal, SignalRanks{.signal = SIGINT, .whole_group = true});
    // A stopped process would get the signal only when somebody lets it go on.
    tell_all(ToAgent::kSignal, SignalRanks{.signal = SIGCONT, .whole_group = true});
  }
  if (actions.stop) {
    tell_all(ToAgent::kStop, *actions.stop);
    kill_by_ = earlier(kill_by_, Clock::now() + std::chrono::milliseconds(actions.stop->kill_after));
  }
  if (!actions.end_ranks.empty()) {
    // A server of ours has nothing to save; a program of the user's gets the time that every rank gets.
    const bool own = config_.plan.frameworks.tf_servers == TfServers::kOwn;
    if (own) kill_servers_by_ = deadline_after(config_.grace);
    signal_ranks(own ? SIGTERM : SIGKILL, actions.end_ranks);
  }
  if (actions.failure_known && verdict_.failure()->cause.kind != CauseKind::kLeftEarly) {
    output_->keep_back_all_but(verdict_.failure()->rank);
  }
}

void Job::fail_start(int code, const std::string& text) {
  if (!verdict_.ending()) output_->say(text);
  act(verdict_.broken(code, text));
  for (auto& agent : agents_) agent->handle.pipe.close_out();
}

}  // namespace distrun::launcher
