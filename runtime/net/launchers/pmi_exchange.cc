// PMI 1 over the socket that mpiexec (MPICH, Intel MPI) or srun --mpi=pmi2 passes in PMI_FD.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "runtime/base/system/fork_guard.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/launchers/pmi_message.h"
#include "runtime/net/launchers/spawner_exchange.h"

namespace distrun::net {
namespace {

using Reply = std::map<std::string, std::string>;
constexpr const char* kPmiKey = "distrun-meeting";
constexpr Duration kFarewell = std::chrono::seconds(1);

class Pmi final : public SpawnerExchange {
 public:
  Pmi(Fd fd, int rank) : fd_(std::move(fd)), rank_(rank) {}
  ~Pmi() override;
  Status open(TimePoint deadline);
  Result<int> size(TimePoint) override { return Status(Errc::kUnsupported, "PMI: PMI_SIZE is missing"); }
  Result<std::string> share(const std::string& text, TimePoint deadline) override;

 private:
  Result<Reply> ask(const std::string& line, const std::string& answer, TimePoint deadline);
  Status send(const std::string& line, TimePoint deadline) const;
  Result<std::string> receive(TimePoint deadline) const;

  // A copy of the descriptor, because an MPI in this process uses PMI_FD itself and closes it. The flags are shared
  // with that MPI, so the descriptor stays blocking.
  const GuardedFd fd_;
  const int rank_;
};

Status Pmi::open(TimePoint deadline) {
  return ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", deadline).status();
}

// Without `finalize` the launcher treats the end of this process as a crash and ends the other ranks.
Pmi::~Pmi() {
  if (!in_forked_child()) (void)ask("cmd=finalize\n", "finalize_ack", Clock::now() + kFarewell);
}

Status Pmi::send(const std::string& line, TimePoint deadline) const {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = ::send(fd_.get(), line.data() + done, line.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) done += static_cast<std::size_t>(n);
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return errno_status("PMI: the launcher has ended (PMI_FD)", errno);
    DISTRUN_RETURN_IF_ERROR(wait_ready(fd_.get(), POLLOUT, deadline));
  }
  return {};
}

// Reads one byte at a time, because the bytes after the line may be for an MPI in this process.
Result<std::string> Pmi::receive(TimePoint deadline) const {
  std::string line;
  while (line.size() < kMaxPmiLine) {
    char c = 0;
    const ssize_t n = ::recv(fd_.get(), &c, 1, MSG_DONTWAIT);
    if (n == 1 && c == '\n') return line;
    if (n == 1) line += c;
    if (n == 1 || (n < 0 && errno == EINTR)) continue;
    if (n == 0) return Status(Errc::kSystem, "PMI: the launcher has ended (PMI_FD ends)");
    if (errno != EAGAIN) return errno_status("PMI: the launcher has ended (PMI_FD)", errno);
    DISTRUN_RETURN_IF_ERROR(wait_ready(fd_.get(), POLLIN, deadline));
  }
  return Status(Errc::kProtocol, "PMI: a line has more than " + std::to_string(kMaxPmiLine) + " bytes");
}

Result<Reply> Pmi::ask(const std::string& line, const std::string& answer, TimePoint deadline) {
  DISTRUN_RETURN_IF_ERROR(send(line, deadline));
  const auto text = receive(deadline);
  if (!text.ok()) return text.status();
  auto reply = parse_pmi(*text);
  if (!reply.ok()) return reply.status();
  const auto code = reply->find("rc");
  if (reply->at("cmd") == answer && (code == reply->end() || code->second == "0")) return reply;
  return Status(Errc::kProtocol, "PMI: the launcher answers '" + line.substr(0, line.find(' ')) + "' with '" + *text +
                                     "'. Start the program with `distrun -np N program`");
}

Result<std::string> Pmi::share(const std::string& text, TimePoint deadline) {
  const auto space = ask("cmd=get_my_kvsname\n", "my_kvsname", deadline);
  if (!space.ok()) return space.status();
  const auto named = space->find("kvsname");
  if (named == space->end()) return Status(Errc::kProtocol, "PMI: the launcher gives no name space (kvsname)");
  const std::string where = " kvsname=" + named->second + " key=" + kPmiKey;
  if (rank_ == 0) {
    DISTRUN_RETURN_IF_ERROR(ask("cmd=put" + where + " value=" + text + "\n", "put_result", deadline).status());
  }
  const auto all = ask("cmd=barrier_in\n", "barrier_out", deadline);
  if (all.status().code() == Errc::kTimeout) {
    return Status(Errc::kTimeout,
                  "some ranks did not call init() in time; PMI does not say which. Every rank that mpiexec or srun "
                  "starts must call it. To wait longer, set start_timeout");
  }
  if (!all.ok()) return all.status();
  auto reply = ask("cmd=get" + where + "\n", "get_result", deadline);
  if (!reply.ok()) return reply.status();
  return (*reply)["value"];
}

}  // namespace

Result<std::unique_ptr<SpawnerExchange>> open_pmi(int fd, int rank, TimePoint deadline) {
  struct stat info {};
  const std::string name = "PMI_FD=" + std::to_string(fd);
  if (::fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) {
    return Status(
        Errc::kInvalidArgument,
        name +
            " is not open in this process. Start this program directly with mpiexec or srun, start it with open "
            "descriptors (close_fds=False in Python), or use `distrun -np N program`");
  }
  Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) return errno_status(name + " cannot be duplicated", errno);
  auto pmi = std::make_unique<Pmi>(std::move(copy), rank);
  DISTRUN_RETURN_IF_ERROR(pmi->open(deadline));
  return std::unique_ptr<SpawnerExchange>(std::move(pmi));
}

}  // namespace distrun::net
