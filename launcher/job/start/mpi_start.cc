#include "launcher/job/start/mpi_start.h"

#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "launcher/agent/dial.h"
#include "launcher/agent/mpi_wrapper.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/poller.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/launchers/meeting.h"

namespace distrun::launcher {
namespace {

constexpr double kEndSeconds = 5;
// MPICH's launcher does not end when ssh has failed; what else it has to say about that comes soon.
constexpr double kLastWordSeconds = 1;

class WrapperSpawner final : public AgentSpawner {
 public:
  // Of one host in the order of the ranks, which is the order in which agents start.
  std::map<std::string, std::deque<AgentHandle>> handles;

  Result<AgentHandle> start(const std::string& host, const std::string&) override {
    std::deque<AgentHandle>& waiting = handles[host];
    if (waiting.empty()) return Status(Errc::kInternal, "its wrapper has been handed out");
    AgentHandle out = std::move(waiting.front());
    waiting.pop_front();
    return out;
  }
};

}  // namespace

Result<std::unique_ptr<MpiStart>> MpiStart::start(const MpiRequest& request) {
  std::unique_ptr<MpiStart> out(new MpiStart());
  out->own_names_ = request.own_names;
  for (const Place& place : request.assignment.places) {
    out->hosts_.push_back(request.assignment.hosts[static_cast<std::size_t>(place.host)]);
  }
  DISTRUN_RETURN_IF_ERROR(out->listen(request));
  DISTRUN_RETURN_IF_ERROR(out->launch(request, out->key_));
  DISTRUN_RETURN_IF_ERROR(out->wait(request));
  return out;
}

Status MpiStart::listen(const MpiRequest& request) {
  const char* where = request.several_machines ? "*:0" : "127.0.0.1:0";
  auto listener = net::listen_secure(where, key_, {.purpose = {}, .job_id = kDialJob}, &log_);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  const auto own = net::parse_address(listener_->address());
  if (!own.ok()) return own.status();
  if (request.several_machines) {
    for (const Candidate& candidate : eligible(net::scan_addresses(), request.network).candidates) {
      addresses_.push_back(net::with_port(candidate.address, own->port));
    }
  } else {
    addresses_.push_back(listener_->address());
  }
  if (!addresses_.empty()) return {};
  return {Errc::kSystem, "--mpi: this machine has no address that other hosts could reach; see --network"};
}

Status MpiStart::launch(const MpiRequest& request, const net::JobKey& key) {
  std::vector<std::string> words = {std::to_string(std::chrono::ceil<std::chrono::seconds>(request.limit).count())};
  if (shares_key_by_pmi(request.starter)) words.emplace_back(kKeyByPmi);
  words.insert(words.end(), addresses_.begin(), addresses_.end());
  auto argv = mpi_argv(request.starter, request.assignment, request.environment, wrapper_command(own_binary(), words));
  if (!argv.ok()) return argv.status();
  const auto program = find_in_path(argv->front(), request.environment);
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
  // On this machine alone they are true everywhere, and what ranks spawn has them from MPI's launcher.
  const Environment environment =
      request.several_machines ? environment_of_starter(request.starter, request.environment) : request.environment;
  for (const auto& [name, value] : environment) spec.environment.push_back(name + "=" + value);
  const auto memory = key.to_descriptor();
  if (!memory.ok()) return memory.status();
  spec.descriptors = {
      {input->first.get(), 0}, {errors->second.get(), 1}, {errors->second.get(), 2}, {memory->get(), kKeyOfParent}};
  spec.ignore_terminal = true;
  spec.die_with_parent = true;
  auto process = start_process(spec);
  if (!process.ok()) return process.status();
  process_ = *std::move(process);
  errors_ = std::move(errors->first);
  ::fcntl(errors_.get(), F_SETFL, O_NONBLOCK);
  std::array<char, 2 * net::JobKey::kBytes + 1> line{};
  ::sodium_bin2hex(line.data(), line.size(), key.data(), net::JobKey::kBytes);
  line.back() = '\n';
  const bool written = ::write(input->second.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
  ::sodium_memzero(line.data(), line.size());
  return written ? Status() : give_up("its standard input cannot be written");
}

// Empty if the wrapper is the one that the plan has in its place.
std::string MpiStart::refusal(const MpiRequest& request, const net::Hello& peer) const {
  const std::string_view purpose = kMpiPurpose;
  if (!peer.purpose.starts_with(purpose)) return "this is the port for the wrappers of --mpi";
  const std::string name = peer.purpose.substr(purpose.size());
  const std::size_t dot = name.find('.');
  const auto rank = parse_number(name.substr(0, dot), 0, static_cast<int>(hosts_.size()) - 1);
  const auto local = dot == std::string::npos ? std::nullopt : parse_number(name.substr(dot + 1), 0, kMaxRanks);
  if (!rank || !local) return "this job has no rank " + name;
  if (wrappers_.contains(*rank)) return "rank " + std::to_string(*rank) + " is here already";
  if (request.assignment.places[static_cast<std::size_t>(*rank)].local_rank == *local) return "";
  return "MPI's launcher has put rank " + std::to_string(*rank) + " elsewhere than the plan (local rank " +
         std::to_string(*local) + "); does a configuration file of it change the mapping?";
}

Status MpiStart::wait(const MpiRequest& request) {
  TimePoint deadline = Clock::now() + request.limit;
  bool unreachable = false;
  Poller poller;
  while (wrappers_.size() < hosts_.size()) {
    poller.clear();
    poller.watch(listener_->fd(), POLLIN, [&](short) {
      listener_->progress(
          Clock::now(), [&](const net::Hello& peer) { return refusal(request, peer); },
          [&](std::unique_ptr<net::SecureSocket> socket) {
            const std::string name = socket->peer().purpose.substr(std::string_view(kMpiPurpose).size());
            wrappers_[parse_number(name.substr(0, name.find('.')), 0, kMaxRanks).value_or(0)] = std::move(socket);
          });
    });
    if (errors_.valid()) poller.watch(errors_.get(), POLLIN, [this](short) { take_errors(); });
    poller.watch(process_.pidfd(), POLLIN, [](short) {});
    DISTRUN_RETURN_IF_ERROR(poller.wait(next_look(process_, deadline)));
    if (gone()) return give_up("it ended before all ranks had started");
    if (!unreachable && ssh_gave_up(printed_)) {
      unreachable = true;
      deadline = std::min(deadline, deadline_after(kLastWordSeconds));
    }
    if (Clock::now() < deadline) continue;
    const std::chrono::duration<double> limit = request.limit;
    return give_up(unreachable ? "it cannot reach a host"
                               : "it has not started all ranks within " + seconds_text(limit.count()) +
                                     " s (a longer --start-timeout waits for them)");
  }
  listener_.reset();
  return {};
}

void MpiStart::take_errors() { read_last_words(errors_, printed_); }

Status MpiStart::give_up(const std::string& what) {
  finish();
  if (errors_.valid()) take_errors();
  return {Errc::kSystem, "--mpi: MPI's launcher could not start the ranks: " + what + " (" +
                             counted(wrappers_.size(), "rank") + " of " + std::to_string(hosts_.size()) +
                             (wrappers_.size() == 1 ? " has" : " have") +
                             " come). --mpi needs mpirun of Open MPI, --mpi=hydra mpiexec.hydra of MPICH or Intel "
                             "MPI, --mpi=pmix and --mpi=pmi2 srun. It printed:\n" +
                             printed_};
}

std::unique_ptr<AgentSpawner> MpiStart::spawner() {
  auto out = std::make_unique<WrapperSpawner>();
  for (auto& [rank, socket] : wrappers_) {
    const std::string& host = hosts_[static_cast<std::size_t>(rank)];
    // A name that only MPI's launcher knows for one of this machine's has its ranks here all the same.
    const bool here = names_this_machine(host, "", own_names_) || net::ends_share_address(socket->fd());
    AgentHandle handle{
        .process = {}, .pipe = FramePipe(std::move(socket)), .errors = {}, .remote = true, .own_host = here};
    // Somebody must read what MPI's launcher prints, or it would stand still.
    if (rank == 0) handle.errors = std::move(errors_);
    out->handles[host].push_back(std::move(handle));
  }
  wrappers_.clear();
  return out;
}

void MpiStart::finish() {
  for (const int number : {0, SIGTERM, SIGKILL}) {
    if (number != 0) process_.signal(number);
    // Wrappers that never came are waiting for us: then there is nothing to wait for.
    if (gone_within(number == 0 && listener_ ? 0 : kEndSeconds)) return;
  }
}

bool MpiStart::gone() {
  // The job's loop reaps all children: then this one is none any more.
  if (process_.running() && ::waitpid(process_.pid(), nullptr, WNOHANG) != 0) process_.reaped();
  return !process_.running();
}

bool MpiStart::gone_within(double seconds) {
  const TimePoint deadline = deadline_after(seconds);
  Poller poller;
  while (!gone()) {
    if (Clock::now() >= deadline) return false;
    poller.clear();
    poller.watch(process_.pidfd(), POLLIN, [](short) {});
    if (!poller.wait(next_look(process_, deadline)).ok()) return false;
  }
  return true;
}

}  // namespace distrun::launcher
