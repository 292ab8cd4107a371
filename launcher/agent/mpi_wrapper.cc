#include "launcher/agent/mpi_wrapper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>

#include "launcher/agent/agent.h"
#include "launcher/agent/dial.h"
#include "launcher/agent/guard.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/schedulers/mpi.h"
#include "launcher/spawn/mpi_guard.h"
#include "launcher/spawn/mpi_leftovers.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/host/host_candidates.h"
#include "runtime/net/launchers/other_launcher.h"
#include "runtime/net/launchers/spawner_exchange.h"

namespace distrun::launcher {
namespace {

constexpr double kMpiDialSeconds = 30;
// Higher than any descriptor number that a rank is given.
constexpr int kFirstCopy = 64;
constexpr int kLongestWait = 1 << 20;

Result<net::JobKey> parse_key(std::string_view digits) {
  std::array<unsigned char, net::JobKey::kBytes> bytes{};
  std::size_t length = 0;
  const bool read =
      ::sodium_hex2bin(bytes.data(), bytes.size(), digits.data(), digits.size(), nullptr, &length, nullptr) == 0;
  auto key = net::JobKey::from_bytes(bytes.data(), read ? length : 0);
  ::sodium_memzero(bytes.data(), bytes.size());
  return key;
}

// Reads one line of hexadecimal digits.
Result<net::JobKey> read_key(double seconds) {
  std::array<char, 2 * net::JobKey::kBytes + 1> line{};
  const TimePoint deadline = deadline_after(seconds);
  for (std::size_t have = 0; have < line.size();) {
    DISTRUN_RETURN_IF_ERROR(net::wait_ready(0, POLLIN, deadline));
    const ssize_t n = ::read(0, line.data() + have, line.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Status(Errc::kSystem, "standard input ended after " + std::to_string(have) + " characters");
    have += static_cast<std::size_t>(n);
  }
  auto key = parse_key({line.data(), line.back() == '\n' ? line.size() - 1 : 0});
  ::sodium_memzero(line.data(), line.size());
  return key;
}

// Reads the key from the parent's memory; nullopt if the parent does not have it.
std::optional<net::JobKey> key_of_parent() {
  const std::string path = "/proc/" + std::to_string(::getppid()) + "/fd/" + std::to_string(kKeyOfParent);
  std::array<char, 64> name{};
  if (::readlink(path.c_str(), name.data(), name.size() - 1) <= 0) return std::nullopt;
  if (!std::string_view(name.data()).starts_with("/memfd:distrun-key")) return std::nullopt;
  const Fd memory(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<unsigned char, net::JobKey::kBytes> bytes{};
  const ssize_t size = memory.valid() ? ::read(memory.get(), bytes.data(), bytes.size()) : -1;
  auto key = net::JobKey::from_bytes(bytes.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
  ::sodium_memzero(bytes.data(), bytes.size());
  return key.ok() ? std::optional(*key) : std::nullopt;
}

// How the processes of MPI's launcher can share a text, and the key that rank 0's wrapper has read. The exchange must
// live as long as this process. Its destruction tells MPI's launcher that this process has not crashed.
struct KeyExchange {
  std::optional<net::OtherLauncher> launcher;
  std::unique_ptr<net::SpawnerExchange> exchange{};
  std::optional<net::JobKey> own{};

  Result<net::JobKey> share(double seconds) {
    const TimePoint deadline = deadline_after(seconds);
    auto opened = net::open_exchange(*launcher, deadline);
    if (!opened.ok()) return opened.status();
    exchange = *std::move(opened);
    std::array<char, 2 * net::JobKey::kBytes + 1> digits{};
    if (own) ::sodium_bin2hex(digits.data(), digits.size(), own->data(), net::JobKey::kBytes);
    const auto word = exchange->share(digits.data(), deadline);
    ::sodium_memzero(digits.data(), digits.size());
    return word.ok() ? parse_key(*word) : Result<net::JobKey>(word.status());
  }
};

// "3.1": rank and local rank as MPI's launcher counts them. The head compares them with its plan.
Result<std::string> who(const Environment& environment) {
  const auto launcher = net::other_launcher(environment);
  if (!launcher.ok()) return launcher.status();
  const int rank = *launcher ? (*launcher)->rank : 0;  // with a single task no launcher is found
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const auto local = environment.find(name);
    if (local != environment.end()) return std::to_string(rank) + "." + local->second.substr(0, 10);
  }
  return Status(
      Errc::kInvalidArgument,
      "no variable has the local rank. --mpi works with mpirun of Open MPI, mpiexec of MPICH and Intel MPI, and srun");
}

// The values that the rank gets from MPI's launcher. PMI's descriptor moves to a number that no descriptor of a rank
// uses.
MpiTask task_of(const Environment& environment, CarrierWatch above) {
  MpiTask out{.above = std::move(above)};
  for (const auto& [name, value] : environment) {
    if (needed_by_mpi(name)) out.variables[name] = value;
  }
  const auto pmi = environment.find("PMI_FD");
  const auto number = pmi == environment.end() ? std::nullopt : parse_number(pmi->second, 3, 1 << 20);
  if (!number) return out;
  out.descriptor = Fd(::fcntl(*number, F_DUPFD_CLOEXEC, kFirstCopy));
  if (!out.descriptor.valid()) return out;
  ::close(*number);
  out.variables["PMI_FD"] = std::to_string(out.descriptor.get());
  return out;
}

bool is_alive(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

// Removes what Open MPI left: of this rank, or of the whole job on this host if the daemon is gone.
void remove_leftovers(const Environment& environment, bool daemon_gone) {
  const auto job = open_mpi_job(environment, net::host_name(), ::geteuid());
  const auto rank = environment.find("OMPI_COMM_WORLD_NODE_RANK");
  if (!job || rank == environment.end()) return;
  const auto number = parse_number(rank->second, 0, kMaxRanks);
  if (!daemon_gone && number) return remove_shared_memory(*job, number);
  if (!daemon_gone) return;
  remove_shared_memory(*job, std::nullopt);
  remove_daemon_folder(*job);
}

}  // namespace

int mpi_wrapper_main(const std::vector<std::string>& words, const Environment& given) {
  // This variable comes from the user's shell or profile. It says nothing about what MPI's launcher has started, and
  // ranks get their own value.
  Environment environment = given;
  environment.erase("WORLD_SIZE");
  // The wait is as long as the head allows for the start of all wrappers: MPI's launcher passes the key on only when
  // all have started.
  const std::string limit = words.empty() ? "" : words.front();
  const auto key_wait = parse_number(limit, 1, kLongestWait);
  if (!key_wait) {
    return unusable(in_quotes(limit) +
                    " is not a number of seconds: the launcher has another version of distrun. Install the "
                    "same version on all hosts");
  }
  const bool by_pmi = words.size() > 1 && words[1] == kKeyByPmi;
  const std::vector<std::string> addresses(words.begin() + (by_pmi ? 2 : 1), words.end());
  const auto name = who(environment);
  if (!name.ok()) return unusable(name.status().message());
  KeyExchange keys;
  // With a single task there is no other wrapper to share the key with.
  if (by_pmi) keys.launcher = *net::other_launcher(environment);
  if (!keys.launcher || keys.launcher->rank == 0) {
    const auto found = key_of_parent();
    const auto key = found ? Result<net::JobKey>(*found) : read_key(*key_wait);
    if (!key.ok()) return unusable("MPI's launcher did not pass on the key of the job: " + key.status().message());
    keys.own = *key;
  }
  ::signal(SIGPIPE, SIG_IGN);
  LeaseEnd lease_end = LeaseEnd::shared();
  const pid_t daemon = ::getppid();
  CarrierWatch above;
  above.add(CarrierNews::kDaemonEnded, daemon);
  if (const std::optional<int> code = stand_guard(OrdersBy::kConnection, lease_end)) {
    remove_leftovers(environment, ::getppid() != daemon);
    return *code;
  }
  above.add(CarrierNews::kGuardEnded, ::getppid());
  // MPI's launcher kills the process group that it started. In a new session this process survives that and still
  // cleans up.
  ::setsid();
  const auto key = keys.launcher ? keys.share(*key_wait) : Result<net::JobKey>(*keys.own);
  if (!key.ok()) return unusable("MPI's launcher did not pass on the key of the job: " + key.status().message());
  auto socket =
      dial_any(addresses, *key, {.purpose = kMpiPurpose + *name, .job_id = kDialJob}, deadline_after(kMpiDialSeconds));
  if (!socket.ok()) return unusable(socket.status().message());
  const pid_t guard = ::getppid();
  auto agent =
      Agent::create(FramePipe(*std::move(socket)), std::move(lease_end), task_of(environment, std::move(above)));
  if (!agent.ok()) return exit_code::kInternal;
  (*agent)->run();
  if (::getppid() != guard) remove_leftovers(environment, !is_alive(daemon));
  return 0;
}

}  // namespace distrun::launcher
