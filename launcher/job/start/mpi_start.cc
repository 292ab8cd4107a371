#include "launcher/job/start/mpi_start.h"

#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "launcher/agent/dial.h"
#include "launcher/agent/mpi_wrapper.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/descendants.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/remote_command.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/launchers/store_contact.h"

namespace distrun::launcher {
namespace {

// The guard of MPI's launcher ends within this time unless it is stopped.
constexpr double kGuardSeconds = 20;
// MPICH's launcher does not end when ssh has failed. Its last messages about this come within this time.
constexpr double kLastWordSeconds = 1;
// Between two starts of MPI's launcher.
constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr Duration kLongestPause = std::chrono::seconds(8);

class WrapperSpawner final : public AgentSpawner {
 public:
  explicit WrapperSpawner(MpiGuard& guard) : guard_(guard) {}

  // By host, in the order of the ranks, which is the order in which agents start.
  std::map<std::string, std::deque<AgentHandle>> handles;

  Result<AgentHandle> start(const std::string& host, const std::string&) override {
    std::deque<AgentHandle>& waiting = handles[host];
    if (waiting.empty()) return Status(Errc::kInternal, "its wrapper has been handed out");
    AgentHandle out = std::move(waiting.front());
    waiting.pop_front();
    return out;
  }
  [[nodiscard]] int carrier() const override { return guard_.ended() ? -1 : guard_.fd(); }
  [[nodiscard]] std::optional<CarrierEnd> carrier_end() const override { return guard_.ended(); }

 private:
  MpiGuard& guard_;
};

}  // namespace

MpiStart::MpiStart(const MpiRequest& request) : request_(request) {
  for (const Place& place : request_.assignment.places) {
    hosts_.push_back(request_.assignment.hosts[static_cast<std::size_t>(place.host)]);
  }
}

Status MpiStart::start() {
  // The first process of a container gets only signals that it handles.
  auto signals = SignalSource::create({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}, {SIGINT, SIGHUP});
  if (!signals.ok()) return signals.status();
  signals_ = *std::move(signals);
  existing_children_ = current_children();
  become_subreaper();
  DISTRUN_RETURN_IF_ERROR(start_all(Clock::now() + request_.limit));
  guard_.all_here();
  return {};
}

// A host may not be there yet. MPI's launcher does not try again, so all of it is started again.
Status MpiStart::start_all(TimePoint deadline) {
  bool reported = false;
  for (Duration between = kFirstPause;; between = std::min(2 * between, kLongestPause)) {
    printed_.clear();
    DISTRUN_RETURN_IF_ERROR(listen());
    DISTRUN_RETURN_IF_ERROR(launch());
    Status started = wait(deadline);
    const std::string failed(failed_ssh(printed_));
    const TimePoint again = Clock::now() + between;
    const bool may_come = started.code() == Errc::kSystem && request_.keep_trying && !failed.empty() &&
                          may_come_later({.exit_code = kSshItself, .printed = printed_, .by_ssh = true});
    if (!may_come || again >= deadline) return started;
    if (!std::exchange(reported, true)) {
      request_.print("MPI's launcher cannot reach a host yet: " + printable(failed) + kTriesAgain);
    }
    DISTRUN_RETURN_IF_ERROR(pause(again));
  }
}

Status MpiStart::pause(TimePoint until) {
  Poller poller;
  while (Clock::now() < until) {
    poller.clear();
    poller.watch(signals_->fd(), POLLIN, [this](short) { take_signals(); });
    DISTRUN_RETURN_IF_ERROR(poller.wait(earlier(until, request_.end_by)));
    if (auto why = called_off(Clock::now())) return *std::move(why);
  }
  return {};
}

Status MpiStart::listen() {
  const char* where = request_.several_machines ? "*:0" : "127.0.0.1:0";
  auto listener = net::listen_secure(where, key_, {.purpose = {}, .job_id = kDialJob}, &log_);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  const auto own = net::parse_address(listener_->address());
  if (!own.ok()) return own.status();
  addresses_.clear();
  if (request_.several_machines) {
    for (const Candidate& candidate : eligible(net::scan_addresses(), request_.network).candidates) {
      addresses_.push_back(net::with_port(candidate.address, own->port));
    }
  } else {
    addresses_.push_back(listener_->address());
  }
  if (!addresses_.empty()) return {};
  return {Errc::kSystem, "--mpi: this machine has no address that other hosts could reach; see --network"};
}

Status MpiStart::launch() {
  std::vector<std::string> words = {std::to_string(std::chrono::ceil<std::chrono::seconds>(request_.limit).count())};
  if (shares_key_by_pmi(request_.starter)) words.emplace_back(kKeyByPmi);
  words.insert(words.end(), addresses_.begin(), addresses_.end());
  auto argv = mpi_argv(request_.starter, request_.assignment, request_.environment,
                       wrapper_command(own_binary(), words), request_.as_root);
  if (!argv.ok()) return argv.status();
  const auto program = find_in_path(argv->front(), request_.environment);
  if (!program) {
    return {Errc::kSystem,
            "--mpi: " + argv->front() +
                " was not found in PATH; it starts the ranks (--mpi uses mpirun, --mpi=hydra mpiexec.hydra, "
                "--mpi=pmix and --mpi=pmi2 srun)"};
  }
  auto input = make_pipe();
  if (!input.ok()) return input.status();
  auto errors = make_pipe();
  if (!errors.ok()) return errors.status();
  ProcessSpec spec;
  spec.program = *program;
  spec.argv = *std::move(argv);
  // If all ranks are on this machine, all variables are valid for them, and processes that ranks spawn get them from
  // MPI's launcher.
  const Environment environment =
      request_.several_machines ? environment_of_starter(request_.starter, request_.environment) : request_.environment;
  for (const auto& [name, value] : environment) spec.environment.push_back(name + "=" + value);
  const auto memory = key_.to_descriptor();
  if (!memory.ok()) return memory.status();
  spec.descriptors = {
      {input->first.get(), 0}, {errors->second.get(), 1}, {errors->second.get(), 2}, {memory->get(), kKeyOfParent}};
  spec.ignore_terminal = true;
  auto guard = MpiGuard::start(spec);
  if (!guard.ok()) return guard.status();
  guard_ = *std::move(guard);
  errors_ = std::move(errors->first);
  ::fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
  return write_key(input->second);
}

Status MpiStart::write_key(const Fd& input) {
  std::array<char, 2 * net::JobKey::kBytes + 1> line{};
  ::sodium_bin2hex(line.data(), line.size(), key_.data(), net::JobKey::kBytes);
  line.back() = '\n';
  const bool written = ::write(input.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
  ::sodium_memzero(line.data(), line.size());
  return written ? Status() : give_up("its standard input cannot be written");
}

// Empty if this wrapper has the rank and local rank that the plan expects.
std::string MpiStart::refusal(const net::Hello& peer) const {
  const std::string_view purpose = kMpiPurpose;
  if (!peer.purpose.starts_with(purpose)) return "this is the port for the wrappers of --mpi";
  const std::string name = peer.purpose.substr(purpose.size());
  const std::size_t dot = name.find('.');
  const auto rank = parse_number(name.substr(0, dot), 0, static_cast<int>(hosts_.size()) - 1);
  const auto local = dot == std::string::npos ? std::nullopt : parse_number(name.substr(dot + 1), 0, kMaxRanks);
  if (!rank || !local) return "this job has no rank " + name;
  if (wrappers_.contains(*rank)) return "rank " + std::to_string(*rank) + " is here already";
  if (request_.assignment.places[static_cast<std::size_t>(*rank)].local_rank == *local) return "";
  return "MPI's launcher has put rank " + std::to_string(*rank) + " elsewhere than the plan (local rank " +
         std::to_string(*local) + "); does a configuration file of it change the mapping?";
}

Status MpiStart::wait(TimePoint deadline) {
  bool unreachable = false;
  Poller poller;
  while (wrappers_.size() < hosts_.size()) {
    poller.clear();
    poller.watch(listener_->fd(), POLLIN, [&](short) {
      listener_->progress(
          Clock::now(),
          [&](const net::Hello& peer) {
            const std::string why = refusal(peer);
            if (!why.empty()) log_.warning("turned away " + printable(peer.purpose) + ": " + why);
            return why;
          },
          [&](std::unique_ptr<net::SecureSocket> socket) {
            const std::string name = socket->peer().purpose.substr(std::string_view(kMpiPurpose).size());
            wrappers_[parse_number(name.substr(0, name.find('.')), 0, kMaxRanks).value_or(0)] = std::move(socket);
          });
    });
    if (errors_.valid()) poller.watch(errors_.get(), POLLIN, [this](short) { take_errors(); });
    poller.watch(guard_.fd(), POLLIN, [](short) {});
    poller.watch(signals_->fd(), POLLIN, [this](short) { take_signals(); });
    DISTRUN_RETURN_IF_ERROR(poller.wait(earlier(deadline, request_.end_by)));
    if (const auto why = called_off(Clock::now())) {
      end_all();
      return *why;
    }
    if (const auto& end = guard_.ended())
      return give_up("it ended before all ranks had started: " + carrier_text(*end));
    if (!unreachable && ssh_gave_up(printed_)) {
      unreachable = true;
      deadline = std::min(deadline, deadline_after(kLastWordSeconds));
    }
    if (Clock::now() < deadline) continue;
    const std::chrono::duration<double> limit = request_.limit;
    return give_up(unreachable ? "it cannot reach a host"
                               : "it has not started all ranks within " + seconds_text(limit.count()) +
                                     " s (a longer --start-timeout waits for them)");
  }
  listener_.reset();
  return {};
}

// --preempt-signal asks ranks to stop by themselves. There are no ranks yet, so it ends the start.
void MpiStart::take_signals() {
  for (const int number : signals_->take()) {
    if (number == SIGQUIT) continue;  // it asks where the ranks are, and there are none yet
    const bool notice = number == SIGUSR1 || number == SIGUSR2;
    if (ended_by_ == 0 && (!notice || number == request_.preempt_signal)) ended_by_ = number;
  }
}

std::optional<Status> MpiStart::called_off(TimePoint now) {
  if (ended_by_ != 0) {
    return Status(Errc::kInterrupted, "got " + signal_name(ended_by_) + " while MPI's launcher was starting: " +
                                          who_has_come() + ". All that it had started is ended");
  }
  if (request_.end_by && now >= *request_.end_by) {
    return Status(Errc::kTimeout, "MPI's launcher was still starting: " + who_has_come());
  }
  return std::nullopt;
}

std::string MpiStart::who_has_come() const {
  std::vector<std::string> late;  // hosts of ranks that have not come
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    if (!wrappers_.contains(static_cast<int>(rank)) && !contains(late, hosts_[rank])) late.push_back(hosts_[rank]);
  }
  const std::string missing = shortened(join(late, ", "));
  return counted(wrappers_.size(), "rank") + " of " + std::to_string(hosts_.size()) +
         (wrappers_.size() == 1 ? " has" : " have") + " come" + (missing.empty() ? "" : ", not those of " + missing);
}

void MpiStart::take_errors() { read_last_words(errors_, printed_); }

Status MpiStart::give_up(const std::string& what) {
  const std::string come = who_has_come();
  end_all();
  if (errors_.valid()) take_errors();
  return {Errc::kSystem, "--mpi: MPI's launcher could not start the ranks: " + what + " (" + come +
                             "). --mpi needs mpirun of Open MPI, --mpi=hydra mpiexec.hydra of MPICH or Intel "
                             "MPI, --mpi=pmix and --mpi=pmi2 srun. It printed:\n" +
                             printable_lines(printed_)};
}

std::unique_ptr<AgentSpawner> MpiStart::spawner() {
  auto out = std::make_unique<WrapperSpawner>(guard_);
  for (auto& [rank, socket] : wrappers_) {
    const std::string& host = hosts_[static_cast<std::size_t>(rank)];
    // The host may be this machine under a name that only MPI's launcher knows.
    const bool here = names_this_machine(host, "", request_.own_names) || net::ends_share_address(socket->fd());
    AgentHandle handle{
        .process = {}, .pipe = FramePipe(std::move(socket)), .errors = {}, .remote = true, .own_host = here};
    // The output of MPI's launcher must be read, or it would block.
    if (rank == 0) handle.errors = std::move(errors_);
    out->handles[host].push_back(std::move(handle));
  }
  wrappers_.clear();
  return out;
}

// Connected wrappers end when their connection is closed.
void MpiStart::end_all() {
  wrappers_.clear();
  listener_.reset();
  guard_.terminate();
  wait_for_guard();
}

void MpiStart::finish(bool host_lost) {
  host_lost ? guard_.finish_without_host() : guard_.finish();
  wait_for_guard();
}

void MpiStart::wait_for_guard() {
  const TimePoint deadline = deadline_after(kGuardSeconds);
  const int before = std::exchange(ended_by_, 0);
  Poller poller;
  while (!guard_.gone() && Clock::now() < deadline) {
    poller.clear();
    poller.watch(guard_.process().pidfd(), POLLIN, [](short) {});
    poller.watch(signals_->fd(), POLLIN, [this](short) { take_signals(); });
    if (!poller.wait(next_look(guard_.process(), deadline)).ok()) break;
    // The user asked again.
    if (std::exchange(ended_by_, 0) != 0) guard_.kill();
  }
  ended_by_ = before;
  if (!guard_.gone()) guard_.process().signal(SIGKILL);
  // If the guard was killed, its processes are now below this one.
  kill_descendants(existing_children_);
  guard_.clean_up_if_killed(request_.environment);
}

}  // namespace distrun::launcher
