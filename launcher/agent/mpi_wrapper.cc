#include "launcher/agent/mpi_wrapper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/agent/agent.h"
#include "launcher/agent/dial.h"
#include "launcher/agent/guard.h"
#include "launcher/exit_codes.h"
#include "launcher/plan/mpi.h"
#include "launcher/plan/text.h"
#include "runtime/net/other_launcher.h"
#include "runtime/net/socket.h"

namespace distrun::launcher {
namespace {

constexpr double kKeySeconds = 30;
constexpr double kDialSeconds = 30;
// Above whatever a rank is given by number.
constexpr int kFirstCopy = 64;

// One line of hexadecimal digits.
Result<net::JobKey> read_key() {
  std::array<char, 2 * net::JobKey::kBytes + 1> line{};
  const TimePoint deadline = deadline_after(kKeySeconds);
  for (std::size_t have = 0; have < line.size();) {
    DISTRUN_RETURN_IF_ERROR(net::wait_ready(0, POLLIN, deadline));
    const ssize_t n = ::read(0, line.data() + have, line.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Status(Errc::kSystem, "standard input ended after " + std::to_string(have) + " characters");
    have += static_cast<std::size_t>(n);
  }
  std::array<unsigned char, net::JobKey::kBytes> bytes{};
  std::size_t length = 0;
  const bool read = line.back() == '\n' && ::sodium_hex2bin(bytes.data(), bytes.size(), line.data(), line.size() - 1,
                                                            nullptr, &length, nullptr) == 0;
  auto key = net::JobKey::from_bytes(bytes.data(), read ? length : 0);
  ::sodium_memzero(bytes.data(), bytes.size());
  ::sodium_memzero(line.data(), line.size());
  return key;
}

// "3.1": rank and local rank as MPI's launcher counts them, for the head to compare with its plan.
Result<std::string> who(const Environment& environment) {
  const auto launcher = net::other_launcher(environment);
  if (!launcher.ok()) return launcher.status();
  const int rank = *launcher ? (*launcher)->rank : 0;  // it finds none where there is one task
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"}) {
    const auto local = environment.find(name);
    if (local != environment.end()) return std::to_string(rank) + "." + local->second.substr(0, 10);
  }
  return Status(Errc::kInvalidArgument, "no variable tells the local rank; is this mpirun of Open MPI, or srun?");
}

// What the rank gets from MPI's launcher. PMI's descriptor moves out of the way of those that we give by number.
MpiTask task_of(const Environment& environment) {
  MpiTask out;
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

}  // namespace

int mpi_wrapper_main(const std::vector<std::string>& addresses, const Environment& environment) {
  const auto key = read_key();
  if (!key.ok()) return unusable("the key did not come through MPI's launcher: " + key.status().message());
  const auto name = who(environment);
  if (!name.ok()) return unusable(name.status().message());
  ::signal(SIGPIPE, SIG_IGN);
  // MPI's launcher ends standard input early; the guard would take that for the head's end.
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  if (const std::optional<int> code = stand_guard()) return *code;
  auto socket =
      dial_any(addresses, *key, {.purpose = kMpiPurpose + *name, .job_id = kDialJob}, deadline_after(kDialSeconds));
  if (!socket.ok()) return unusable(socket.status().message());
  auto agent = Agent::create(FramePipe(*std::move(socket)), task_of(environment));
  return agent.ok() ? (*agent)->run() : exit_code::kInternal;
}

}  // namespace distrun::launcher
