#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <utility>

#include "launcher/agent/guard.h"
#include "launcher/agent/preflight/python_module.h"
#include "launcher/agent/preflight/scan.h"
#include "launcher/exit_codes.h"
#include "launcher/spawn/descendants.h"
#include "launcher/version.h"
#include "runtime/base/settings.h"
#include "runtime/net/identity/world.h"

namespace distrun::launcher {
namespace {
using namespace exit_code;
}  // namespace

Agent::Agent(FramePipe head, SignalSource signals, MpiTask task)
    : head_(std::move(head)), mpi_(std::move(task)), signals_(std::move(signals)) {}

Result<std::unique_ptr<Agent>> Agent::create(FramePipe head, MpiTask task) {
  // TERM to the agent itself (a batch system ending the job) ends the ranks in good order; USR1 and USR2 are notices
  // that a batch system gives to every process of a job.
  auto signals = SignalSource::create({SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2}, {});
  if (!signals.ok()) return signals.status();
  become_subreaper();
  raise_open_files();
  return std::unique_ptr<Agent>(new Agent(std::move(head), *std::move(signals), std::move(task)));
}

void Agent::note(const std::string& text) {
  head_.send(static_cast<std::uint8_t>(FromAgent::kNote), net::as_bytes(text));
}

// The first one counts.
void Agent::failed(int exit_code) {
  if (exit_code_ == 0) exit_code_ = exit_code;
}

void Agent::head_lost() {
  failed(started_ ? kHostLost : kUnusable);
  ending_.kill_now(Clock::now());
}

void Agent::refuse(int exit_code, std::string text) {
  failed(exit_code);
  send(FromAgent::kRefused, Refused{.exit_code = exit_code, .text = std::move(text)});
  ending_.kill_now(Clock::now());
}

RankProcess::OnOutput Agent::forward_output() {
  return [this](const StreamBytes& bytes) { send(FromAgent::kOutput, bytes); };
}

void Agent::run() {
  while (!finished_) {
    watch();
    if (const Status status = poller_.wait(deadline()); !status.ok()) {
      refuse(kInternal, status.message());
    }
    // Starting many ranks takes its time, and nothing has been read since.
    beat(poller_.woke());
    probe_more(Clock::now());
    oom_kills_.tick(Clock::now());
    const Ending::View view{.started = started_,
                            .ranks_alive = ranks_alive(),
                            .any_child = any_child_,
                            .carriers_only = carriers_only_,
                            .now = Clock::now()};
    act(ending_.next(view));
    report_drained();
  }
  take_leave();
}

// Nothing runs below us any more; only what the head has not taken yet is left. Of a connection that we closed with
// words of the head's unread, the kernel would drop that: the head closes, when it has all.
void Agent::take_leave() {
  while (!head_.closed() && (head_.wants_write() || head_.is_connection())) {
    poller_.clear();
    if (head_.is_connection()) poller_.watch(head_.in(), POLLIN, [this](short) { receive(); });
    if (head_.wants_write()) poller_.watch(head_.out(), POLLOUT, [this](short) { head_.flush(); });
    const bool listens = heart_.on() && !held_;
    if (!poller_.wait(listens ? std::optional(heart_.deadline()) : std::nullopt).ok()) return;
    beat(poller_.woke());
  }
}

void Agent::watch() {
  poller_.clear();
  // Before the head, whose order to start destroys it in the same round.
  if (listener_) listener_->watch(poller_);
  if (!head_.closed()) {
    poller_.watch(head_.in(), POLLIN, [this](short) { receive(); });
    if (head_.wants_write()) poller_.watch(head_.out(), POLLOUT, [this](short) { head_.flush(); });
  }
  if (prober_) prober_->watch(poller_);
  // Before the signals, because what is done about those may end what is watched here.
  if (starter_) starter_->watch(poller_);
  oom_kills_.watch(poller_);
  poller_.watch(signals_.fd(), POLLIN, [this](short) { on_signals(); });
  const RankProcess::OnOutput output = forward_output();
  for (auto& [number, rank] : ranks_) {
    rank.watch(poller_, output);
    RankProcess* const it = &rank;
    if (rank.process().exec_report() >= 0) {
      poller_.watch(rank.process().exec_report(), POLLIN, [this, it](short) { check_exec(*it); });
    }
  }
  if (input_pending_) tell_input_taken();
}

void Agent::on_signals() {
  for (const int number : signals_.take()) {
    if (job_ && number == job_->preempt_signal) {
      head_.send(static_cast<std::uint8_t>(FromAgent::kPreempted), {});
    } else if (number == SIGTERM) {
      terminate();
    }
  }
  reap();
}

// Something other than the head ends this agent.
void Agent::terminate() {
  if (started_) return ending_.stop({.kill_after = static_cast<std::uint32_t>(job_->grace * 1000)}, Clock::now());
  // Without ranks there is nothing to end in good order. The head sees this host go, and starts none anywhere.
  failed(kSignalBase + SIGTERM);
  head_.abandon();
  ending_.kill_now(Clock::now());
}

void Agent::tell_input_taken() {
  InputTaken answer;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.input_empty()) return;
    answer.more = answer.more || rank.takes_input();
  }
  input_pending_ = false;
  send(FromAgent::kInputTaken, answer);
}

std::optional<TimePoint> Agent::deadline() const {
  const bool speaks = heart_.on() && !head_.closed() && !held_;
  auto next = speaks ? earlier(ending_.deadline(), heart_.deadline()) : ending_.deadline();
  next = earlier(next, oom_kills_.deadline());
  return prober_ ? earlier(next, prober_->deadline()) : next;
}

void Agent::beat(TimePoint now) {
  if (head_.closed() || held_) return;
  if (heart_.speak(now)) head_.send(static_cast<std::uint8_t>(FromAgent::kAlive), {});
  if (!heart_.silent(now)) return;
  // The head or the network to it is gone; nobody looks after these ranks any more.
  head_.abandon();
  if (!finished_) head_lost();
}

void Agent::receive() {
  heart_.heard(Clock::now());
  held_ = false;
  for (const Frame& frame : head_.receive()) handle(frame);
  // Whether the head closed its end or was killed: it cannot look after these ranks any more.
  if (head_.closed() && !finished_) head_lost();
}

void Agent::handle(const Frame& frame) {
  const auto use = [this](auto decoded, auto action) {
    if (decoded.ok()) {
      action(*decoded);
    } else {
      refuse(kInternal, "agent: " + decoded.status().message());
    }
  };
  switch (static_cast<ToAgent>(frame.type)) {
    case ToAgent::kPrepare:
      return use(decode<Prepare>(frame.payload), [this](const Prepare& order) { prepare(order); });
    case ToAgent::kProbe:
      return use(decode<Probe>(frame.payload), [this](const Probe& order) { probe(order); });
    case ToAgent::kStart:
      return use(decode<Start>(frame.payload), [this](const Start& order) { start(order); });
    case ToAgent::kCredit:
      return use(decode<Credit>(frame.payload), [this](const Credit& credit) {
        if (const auto rank = ranks_.find(credit.rank); rank != ranks_.end()) {
          rank->second.add_credit(credit.stream, credit.bytes);
        }
      });
    case ToAgent::kSignal:
      return use(decode<SignalRanks>(frame.payload), [this](const SignalRanks& order) {
        for (auto& [number, rank] : ranks_) {
          const auto& only = order.ranks;
          if (!only.empty() && std::find(only.begin(), only.end(), number) == only.end()) continue;
          if (!only.empty() && order.signal == SIGKILL) dismissed_.insert(number);
          order.whole_group ? rank.process().signal_group(order.signal) : rank.process().signal(order.signal);
        }
      });
    case ToAgent::kStop:
      return use(decode<Stop>(frame.payload), [this](const Stop& order) { ending_.stop(order, Clock::now()); });
    case ToAgent::kAlive:
      return use(decode<Alive>(frame.payload), [this](const Alive& word) { held_ = word.hold; });
    case ToAgent::kWindow:
      return use(decode<Window>(frame.payload), [this](const Window& window) {
        for (auto& [number, rank] : ranks_) rank.resize(window);
      });
    case ToAgent::kStartHosts:
      return use(decode<StartHosts>(frame.payload), [this](const StartHosts& order) { start_hosts(order); });
    case ToAgent::kInput:
    case ToAgent::kInputEnd:
      return input(frame);
  }
  refuse(kInternal, "agent: message " + std::to_string(frame.type) + " is unknown");
}

void Agent::input(const Frame& frame) {
  const bool end = static_cast<ToAgent>(frame.type) == ToAgent::kInputEnd;
  for (auto& [number, rank] : ranks_) end ? rank.end_input() : rank.add_input(frame.payload);
  input_pending_ = !end;
}

void Agent::start_hosts(const StartHosts& order) {
  if (starter_ || ending_.stopping()) return;
  starter_ = std::make_unique<HostStarter>(order, process_environment());
  any_child_ = any_child_ || !starter_->carriers().empty();
  tell_failed_hosts();
}

void Agent::tell_failed_hosts() {
  if (!starter_) return;
  for (const HostFailed& fault : starter_->take_failures()) send(FromAgent::kHostFailed, fault);
}

Topology Agent::topology_of(const Prepare& order) const {
  Topology out = scan_topology(order.sysroot);
  out.visible_devices = visible_devices(job_->common.environment);
  return out;
}

void Agent::prepare(const Prepare& order) {
  if (order.protocol != kAgentProtocol) {
    return refuse(kUnusable, "host " + order.host + ": distrun there is version " + kVersion + " and here " +
                                 order.version + ", which do not fit; install the same version on all hosts");
  }
  job_ = order;
  std::vector<std::string> reasons = take_host_own(job_->common, process_environment());
  for (const auto& [name, value] : mpi_.variables) job_->common.environment[name] = value;
  ending_ = Ending(duration_of(order.grace));
  const HostFacts known{.topology = topology_of(order), .machine = machine_identity(), .reasons = std::move(reasons)};
  if (order.ask) return send(FromAgent::kPrepared, Prepared{.facts = known});
  program_ = find_program(job_->common, order.host);
  if (!program_.refused) program_.refused = missing_module(job_->common, program_.path, order.host);
  if (program_.refused) return refuse(program_.refused->exit_code, program_.refused->text);
  if (!job_->common.server.empty()) {
    server_ = find_server(job_->common, order.host);
    if (server_.refused) return refuse(server_.refused->exit_code, server_.refused->text);
  }
  auto ports = HeldPorts::hold(order.ports);
  if (!ports.ok()) return refuse(kUnusable, "host " + order.host + ": " + ports.status().message());
  ports_ = *std::move(ports);
  Prepared answer{.facts = known};
  answer.facts.ports = ports_.numbers();
  // One host: everybody is reached over the loopback interface. With several, probes will tell.
  answer.facts.address = "127.0.0.1";
  if (order.probe) {
    auto listener = ProbeListener::open();
    if (!listener.ok()) return refuse(kUnusable, "host " + order.host + ": " + listener.status().message());
    listener_.emplace(*std::move(listener));
    answer.facts.candidates = net::scan_addresses();
    answer.facts.probe_port = listener_->port();
  }
  send(FromAgent::kPrepared, answer);
  // The head says nothing before it has the answer, and looking for a module may have taken long.
  heart_ = Heartbeat(duration_of(order.lease), Clock::now());
}

void Agent::probe(const Probe& order) {
  if (ending_.stopping()) return;  // it was sent before the head knew that this agent refuses
  const auto key = net::JobKey::from_bytes(reinterpret_cast<const unsigned char*>(order.key.data()), order.key.size());
  if (!key.ok() || !job_ || !listener_ || prober_) return refuse(kInternal, "agent: a probe at the wrong time");
  const ProbeSelf self{.host = order.host, .job_id = job_->job_id};
  listener_->answer(*key, self);
  prober_ = std::make_unique<Prober>(*key, self, order.targets);
}

void Agent::probe_more(TimePoint now) {
  if (!prober_) return;
  prober_->progress(now);
  if (!prober_->done()) return;
  send(FromAgent::kProbed, Probed{.results = prober_->take_results()});
  prober_.reset();
}

void Agent::start(const Start& order) {
  if (!job_ || started_) return refuse(kInternal, "agent: start before prepare, or twice");
  started_ = true;
  listener_.reset();
  tell_abandoned(end_abandoned_cgroups("/"));
  cgroup_ = RankCgroup::create("/", rank_cgroup_name(job_->job_id, ::getpid()));
  oom_kills_ = OomKills("/", Clock::now());
  if (!order.no_grpc_proxy.empty()) job_->common.environment["no_grpc_proxy"] = order.no_grpc_proxy;
  const RankSetting setting{.common = &job_->common,
                            .tf_cluster = order.tf_cluster,
                            .program = program_.path,
                            .server = server_.path,
                            .cgroup = cgroup_.directory(),
                            .key_fd = order.plan.key_fd,
                            .mpi_fd = mpi_.descriptor.get()};
  for (const RankPlan& plan : order.plan.ranks) {
    if (!ending_.stopping()) start_rank(plan, setting, order.key);
  }
}

void Agent::start_rank(const RankPlan& plan, const RankSetting& setting, const std::vector<std::byte>& key) {
  const auto job_key = net::JobKey::from_bytes(reinterpret_cast<const unsigned char*>(key.data()), key.size());
  if (!job_key.ok()) return refuse(kInternal, job_key.status().message());
  // A descriptor of its own for each rank, because readers of a shared one would share its position.
  auto descriptor = job_key->to_descriptor();
  if (!descriptor.ok()) return refuse(kUnusable, descriptor.status().message());
  auto rank = RankProcess::start(plan, setting, *std::move(descriptor));
  if (!rank.ok()) {
    return refuse(kUnusable, "rank " + std::to_string(plan.rank) + " could not be started on host " + job_->host +
                                 ": " + rank.status().message());
  }
  any_child_ = true;
  send(FromAgent::kStarted, RankStarted{.rank = plan.rank, .pid = rank->process().pid()});
  ranks_.emplace(plan.rank, *std::move(rank));
}

void Agent::check_exec(RankProcess& rank) {
  const auto fault = rank.process().take_exec_report();
  if (!fault || fault->error == 0) return;
  const std::string who = "rank " + std::to_string(rank.rank()) + " on host " + job_->host;
  const std::string what = errno_status("", fault->error).message().substr(2);
  if (fault->step == 'a') return refuse(kUnusable, who + " could not be pinned to its cores: " + what);
  if (fault->step == 'd') return refuse(kUnusable, who + " could not enter " + job_->common.cwd + ": " + what);
  const bool missing = fault->error == ENOENT || fault->error == ENOTDIR;
  refuse(missing ? kMissing : kNotExecutable, who + " could not execute " + rank.program() + ": " + what +
                                                  (missing ? "; does its #! line name a program that exists?" : ""));
}

std::vector<pid_t> Agent::carriers() const { return starter_ ? starter_->carriers() : std::vector<pid_t>(); }

bool Agent::ranks_alive() const {
  for (const auto& [number, rank] : ranks_) {
    if (rank.process().running()) return true;
  }
  return false;
}

int agent_main(bool guard) {
  if (::isatty(0) != 0) {
    constexpr char kText[] = "distrun agent: this is started by distrun itself, on each host; type distrun --help\n";
    [[maybe_unused]] const ssize_t n = ::write(2, kText, sizeof kText - 1);
    return kUsage;
  }
  if (guard) {
    if (const std::optional<int> code = stand_guard(OrdersBy::kStandardInput)) return *code;
  } else {
    // The head guards it, and the other way round: pkill distrun is not to end both.
    ::prctl(PR_SET_NAME, "dr-agent");
  }
  // Away from 0 and 1, so that no library can write into the messages by accident.
  Fd in(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  Fd out(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  ::dup2(null.get(), 1);
  ::signal(SIGPIPE, SIG_IGN);
  FramePipe head(std::move(in), std::move(out));
  head.greet(kAgentGreeting);
  auto agent = Agent::create(std::move(head));
  if (!agent.ok()) return kInternal;
  (*agent)->run();
  return 0;
}

}  // namespace distrun::launcher
