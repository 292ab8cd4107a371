#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "launcher/agent/guard.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/schedulers/slurm.h"
#include "launcher/spawn/descendants.h"
#include "runtime/base/environment.h"
#include "runtime/net/identity/world.h"

namespace distrun::launcher {
namespace {
using namespace exit_code;

// A shell exits with 137 if its program was killed.
bool killed(int status) {
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == kSignalBase + SIGKILL;
}

// Which processes are below this one. They are read at the first question, and once.
std::function<bool(pid_t)> below_us() {
  return [ours = std::optional<std::vector<ProcessInfo>>()](pid_t pid) mutable {
    if (!ours) ours = descendants();
    return std::any_of(ours->begin(), ours->end(), [pid](const ProcessInfo& one) { return one.pid == pid; });
  };
}
}  // namespace

Agent::Agent(HeadConnection head, SignalSource signals, MpiTask task)
    : head_(std::move(head)), mpi_(std::move(task)), signals_(std::move(signals)) {}

Result<std::unique_ptr<Agent>> Agent::create(FramePipe head, LeaseEnd lease_end, MpiTask task) {
  // TERM to the agent itself (a batch system ends the job) ends the ranks gracefully. USR1 and USR2 are notices that a
  // batch system sends to every process of a job. QUIT asks where the ranks are, as it does at the launcher.
  auto signals = SignalSource::create({SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGQUIT}, {});
  if (!signals.ok()) return signals.status();
  become_subreaper();
  raise_open_files();
  return std::unique_ptr<Agent>(
      new Agent(HeadConnection(std::move(head), std::move(lease_end)), *std::move(signals), std::move(task)));
}

void Agent::run() {
  while (!finished_) {
    watch();
    if (const Status status = poller_.wait(deadline()); !status.ok()) {
      refuse(kInternal, status.message());
    }
    check_lease();
    if (const auto probed = preparation_.progress(Clock::now())) head_.send(FromAgent::kProbed, *probed);
    oom_kills_.tick(Clock::now());
    below_.ranks_alive = ranks_.alive();
    below_.now = Clock::now();
    act(ending_.next(below_));
    report_drained();
  }
  head_.drain(poller_, [this] { receive(); });
}

void Agent::watch() {
  poller_.clear();
  // The probes come before the head: an order of the head may destroy the probe objects, and their callbacks must have
  // run before.
  preparation_.watch_probes(poller_);
  head_.watch(poller_, [this] { receive(); });
  // This comes before the signals: the end of a process above ends the processes below, and the head must get the cause
  // first.
  mpi_.above.watch(poller_, [this](const CarrierNews& news) { head_.send(FromAgent::kCarrierNews, news); });
  // This comes before the signals: the handling of a child's end may destroy the objects that are watched here.
  if (starter_) starter_->watch(poller_);
  oom_kills_.watch(poller_);
  poller_.watch(signals_.fd(), POLLIN, [this](short) { on_signals(); });
  ranks_.watch(poller_, forward_output(), [this](RankProcess& rank) { check_exec(rank); });
  if (const auto taken = ranks_.input_taken()) head_.send(FromAgent::kInputTaken, *taken);
}

std::optional<TimePoint> Agent::deadline() const {
  return earlier(earlier(ending_.deadline(), head_.deadline()),
                 earlier(oom_kills_.deadline(), preparation_.deadline()));
}

void Agent::receive() {
  for (const Frame& frame : head_.receive()) handle(frame);
  // The head has closed its end, or it was killed. In both cases it can no longer watch over these ranks.
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
      return use(decode<Credit>(frame.payload), [this](const Credit& credit) { ranks_.add_credit(credit); });
    case ToAgent::kSignal:
      return use(decode<SignalRanks>(frame.payload), [this](const SignalRanks& order) { ranks_.signal(order); });
    case ToAgent::kStop:
      return use(decode<Stop>(frame.payload), [this](const Stop& order) { ending_.stop(order, Clock::now()); });
    case ToAgent::kAlive:
      return use(decode<Alive>(frame.payload), [this](const Alive& word) { head_.on(word, boot_time()); });
    case ToAgent::kWindow:
      return use(decode<Window>(frame.payload), [this](const Window& window) { ranks_.resize(window); });
    case ToAgent::kStartHosts:
      return use(decode<StartHosts>(frame.payload), [this](const StartHosts& order) { start_hosts(order); });
    case ToAgent::kAskStates:
      return use(decode<AskStates>(frame.payload), [this](const AskStates& question) { report_states(question); });
    case ToAgent::kResolve:
      // Comes when all probes have ended and no rank has started, so that the agent has time for name servers.
      return use(decode<Resolve>(frame.payload),
                 [this](const Resolve& question) { head_.send(FromAgent::kResolved, resolved(question)); });
    case ToAgent::kHostGone:
      return use(decode<HostGone>(frame.payload), [this](const HostGone& host) { end_host(host); });
    case ToAgent::kInput:
      return ranks_.add_input(frame.payload);
    case ToAgent::kInputEnd:
      return ranks_.end_input();
  }
  refuse(kInternal, "agent: message " + std::to_string(frame.type) + " is unknown");
}

void Agent::prepare(const Prepare& order) {
  ending_ = Ending(duration_of(order.grace));
  const auto answer = preparation_.prepare(order, process_environment(), mpi_.variables);
  if (const auto* why = std::get_if<Refused>(&answer)) {
    if (order.keep_trying && why->may_come) return head_.send(FromAgent::kRefused, *why);
    return refuse(why->exit_code, why->text);
  }
  // The lease starts only now, after the search for modules, which may take long. The head counts from the moment when
  // it receives the answer.
  if (!order.ask) head_.start_lease(std::chrono::duration_cast<BootTime>(duration_of(order.lease)), boot_time());
  head_.send(FromAgent::kPrepared, std::get<Prepared>(answer));
}

void Agent::probe(const Probe& order) {
  if (ending_.stopping() || !preparation_.ready()) return;  // sent before the head knew that this agent refuses
  if (const Status status = preparation_.probe(order); !status.ok()) refuse(kInternal, status.message());
}

void Agent::report_states(const AskStates& question) {
  RankStates answer = ranks_.states(question);
  if (question.round != AskStates::kStatesOnly) answer.probe_port = preparation_.listen_again(question.listen);
  head_.send(FromAgent::kRankStates, answer);
}

void Agent::start(const Start& order) {
  if (!preparation_.known() || below_.started) return refuse(kInternal, "agent: start before prepare, or twice");
  below_.started = true;
  preparation_.begin(order);
  if (const std::vector<pid_t> ended = end_abandoned_cgroups("/"); !ended.empty()) {
    head_.note("host " + preparation_.job().host +
               ": distrun has ended processes of an earlier job, whose agent was killed: pid " +
               ranges({ended.begin(), ended.end()}));
  }
  cgroup_ = RankCgroup::create("/", rank_cgroup_name(preparation_.job().job_id, ::getpid()));
  oom_kills_ = OomKills("/", Clock::now());
  start_ranks(order);
}

void Agent::start_ranks(const Start& order) {
  const auto key = net::JobKey::from_bytes(reinterpret_cast<const unsigned char*>(order.key.data()), order.key.size());
  if (!key.ok()) return refuse(kInternal, key.status().message());
  const Prepare& job = preparation_.job();
  const RankSetting setting{.common = &job.common,
                            .tf_cluster = order.tf_cluster,
                            .program = preparation_.program(),
                            .server = preparation_.server(),
                            .cgroup = cgroup_.directory(),
                            .ignore_quit = in_slurm_job(process_environment()),
                            .key_fd = order.plan.key_fd,
                            .mpi_fd = mpi_.descriptor.get()};
  for (const RankPlan& plan : order.plan.ranks) {
    if (ending_.stopping()) return;
    // Each rank gets its own descriptor, because readers of a shared one would share its file position.
    auto descriptor = key->to_descriptor();
    if (!descriptor.ok()) return refuse(kUnusable, descriptor.status().message());
    const auto pid = ranks_.start(plan, setting, *std::move(descriptor));
    if (!pid.ok()) {
      return refuse(kUnusable, "rank " + std::to_string(plan.rank) + " could not be started on host " + job.host +
                                   ": " + pid.status().message());
    }
    below_.any_child = true;
    head_.send(FromAgent::kStarted, RankStarted{.rank = plan.rank, .pid = *pid});
  }
}

void Agent::start_hosts(const StartHosts& order) {
  if (starter_ || ending_.stopping()) return;
  starter_ = std::make_unique<HostStarter>(order, process_environment());
  below_.any_child = below_.any_child || !starter_->carriers().empty();
  report_failed_hosts();
}

void Agent::end_host(const HostGone& host) {
  if (starter_) starter_->end(host.index);
}

void Agent::report_failed_hosts() {
  if (!starter_) return;
  for (const HostFailed& fault : starter_->take_failures()) head_.send(FromAgent::kHostFailed, fault);
}

void Agent::on_signals() {
  // Checks the lease first: at its end the guard may have killed ranks a moment before this process could.
  check_lease();
  for (const int number : signals_.take()) {
    if (preparation_.known() && number == preparation_.job().preempt_signal) {
      head_.send_bytes(FromAgent::kPreempted, {});
    } else if (number == SIGTERM) {
      terminate();
    } else if (number == SIGQUIT) {
      head_.send_bytes(FromAgent::kStacksAsked, {});
    } else if (number == SIGCONT && mpi_.above.any() && below_.started) {
      head_.send(FromAgent::kCarrierNews, mpi_.above.news_of_daemon(CarrierNews::kContinued));
    }
  }
  reap();
}

void Agent::reap() {
  bool none_left = false;
  const std::set<pid_t> own_limit = ranks_.out_of_memory();
  const std::vector<Reaped> children = reap_children(none_left);
  const bool any_killed =
      std::any_of(children.begin(), children.end(), [](const Reaped& one) { return killed(one.status); });
  // One check for all of them: when memory runs out, the kernel may kill several at once.
  const bool out_of_memory = any_killed && oom_kills_.of_late(Clock::now(), below_us());
  for (const Reaped& child : children) {
    if (starter_ && starter_->ended(child.pid, child.status)) continue;
    if (RankProcess* rank = ranks_.reaped(child.pid)) {
      rank_ended(*rank, child.status, own_limit.contains(child.pid) || (out_of_memory && killed(child.status)));
    }
  }
  below_.any_child = !none_left;
  const std::vector<pid_t> carrying = carriers();
  below_.carriers_only = below_.any_child && !carrying.empty() && descendants(carrying).empty();
  report_failed_hosts();
}

void Agent::rank_ended(RankProcess& rank, int status, bool out_of_memory) {
  // The exec report is complete when its writer is gone. A rank that could not execute its program did not "exit with
  // 127".
  check_exec(rank);
  RankExited message{.rank = rank.rank(), .pid = rank.process().pid(), .wrote = rank.wrote()};
  if (WIFSIGNALED(status)) {
    message.signal = WTERMSIG(status);
    message.by_agent = terminated_ && (message.signal == SIGTERM || message.signal == SIGKILL);
  } else {
    message.exit_code = WEXITSTATUS(status);
  }
  message.out_of_memory = out_of_memory && !message.by_agent;
  if (!ranks_.not_needed(rank.rank())) {
    failed(message.signal != 0 ? kSignalBase + message.signal : message.exit_code);
  }
  head_.send(FromAgent::kExited, message);
}

// A rank's last output may come after its exit message: the news of an exit must not wait for a full pipe.
void Agent::report_drained() {
  const Ranks::Drained drained = ranks_.drain(forward_output(), done_);
  for (const int rank : drained.ranks) head_.send(FromAgent::kDrained, Drained{.rank = rank});
  if (!done_ || (!drained.all_closed && !head_.closed())) return;
  if (const auto left = ranks_.input_left()) head_.send(FromAgent::kInputTaken, *left);
  head_.send_bytes(FromAgent::kDone, {});
  finished_ = true;
}

// Only the first code is kept.
void Agent::failed(int exit_code) {
  if (exit_code_ == 0) exit_code_ = exit_code;
}

void Agent::head_lost() {
  failed(below_.started ? kHostLost : kUnusable);
  ending_.kill_now(Clock::now());
}

// Ends the ranks when the lease is over. If the connection still works, the refusal tells the head why.
void Agent::check_lease() {
  if (!head_.send_heartbeat(boot_time())) return;
  terminated_ = true;
  refuse(below_.started ? kHostLost : kUnusable,
         "host " + preparation_.job().host + " has heard nothing from the launcher for " +
             seconds_text(std::chrono::duration<double>(head_.lease().limit()).count()) +
             " s (--host-timeout), and has ended its ranks. Was the launcher stopped? Otherwise check the network "
             "between the two");
}

void Agent::refuse(int exit_code, std::string text) {
  failed(exit_code);
  head_.send(FromAgent::kRefused, Refused{.exit_code = exit_code, .text = std::move(text)});
  ending_.kill_now(Clock::now());
}

// A process other than the head ends this agent.
void Agent::terminate() {
  if (below_.started) {
    if (mpi_.above.any()) head_.send(FromAgent::kCarrierNews, mpi_.above.news_of_daemon(CarrierNews::kAskedToEnd));
    const auto grace = static_cast<std::uint32_t>(preparation_.job().grace * 1000);
    return ending_.stop({.kill_after = grace}, Clock::now());
  }
  // No ranks have started, so nothing needs a graceful end. The head sees that this host is gone and starts no ranks
  // anywhere.
  failed(kSignalBase + SIGTERM);
  head_.abandon();
  ending_.kill_now(Clock::now());
}

void Agent::check_exec(RankProcess& rank) {
  if (auto fault = exec_fault(rank, preparation_.job())) refuse(fault->exit_code, std::move(fault->text));
}

void Agent::act(const Ending::Actions& actions) {
  if (ranks_.terminate(actions.term_ranks, actions.term_all_ranks)) terminated_ = true;
  if (actions.left_behind) {
    if (const std::vector<ProcessInfo> rest = ranks_.left_behind(carriers()); !rest.empty()) {
      head_.note("all ranks on host " + preparation_.job().host +
                 " have ended, but processes that they started still run. After " +
                 seconds_text(preparation_.job().grace) + " s they get TERM, then KILL: " + describe(rest));
    }
  }
  if (actions.term_leftovers) signal_processes(ranks_.left_behind(carriers()), SIGTERM);
  if (actions.kill_all) {
    kill_everything();
    // Some processes cannot be killed at once. This message tells the head that the agent still tries.
    head_.send(FromAgent::kAlive, Heartbeat{});
  }
  if (actions.give_up) head_.note("host " + preparation_.job().host + ": " + unkillable(descendants()));
  done_ = actions.done || actions.give_up;
}

void Agent::kill_everything() {
  // The job continues on other hosts. The ssh processes that carry their agents are not leftovers of the ranks here.
  if (const auto carrying = carriers(); !ending_.ordered() && !carrying.empty()) {
    signal_processes(ranks_.left_behind(carrying), SIGKILL);
    return;
  }
  terminated_ = true;
  ranks_.kill();
  cgroup_.kill();
  signal_processes(descendants(), SIGKILL);
}

std::vector<pid_t> Agent::carriers() const { return starter_ ? starter_->carriers() : std::vector<pid_t>(); }

RankProcess::OnOutput Agent::forward_output() {
  return [this](const StreamBytes& bytes) { head_.send(FromAgent::kOutput, bytes); };
}

int agent_main(bool guard) {
  LeaseEnd lease_end = guard ? LeaseEnd::shared() : LeaseEnd();
  // distrun sends its orders through a pipe or a socket. A terminal or /dev/null means that a person typed the command.
  // With a guard, distrun did, and something on the way took the input: the head names it.
  struct stat input {};
  const bool person = guard ? ::isatty(0) != 0 : ::fstat(0, &input) == 0 && S_ISCHR(input.st_mode);
  if (person) {
    constexpr char kText[] =
        "distrun: distrun starts this agent itself, and writes to its input. Type distrun agent --help\n";
    [[maybe_unused]] const ssize_t n = ::write(2, kText, sizeof kText - 1);
    return kUsage;
  }
  if (guard) {
    if (const std::optional<int> code = stand_guard(OrdersBy::kStandardInput, lease_end)) return *code;
  } else {
    // The head and this agent guard each other. With another name, `pkill distrun` does not kill both.
    ::prctl(PR_SET_NAME, "dr-agent");
  }
  // Moves the descriptors away from 0 and 1, so that no library can write into the messages by accident.
  Fd in(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  Fd out(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  ::dup2(null.get(), 1);
  ::signal(SIGPIPE, SIG_IGN);
  FramePipe head(std::move(in), std::move(out));
  head.greet(kAgentGreeting);
  auto agent = Agent::create(std::move(head), std::move(lease_end));
  if (!agent.ok()) return kInternal;
  (*agent)->run();
  return 0;
}

}  // namespace distrun::launcher
