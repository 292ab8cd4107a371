#include "launcher/spawn/mpi_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "launcher/exit_codes.h"
#include "launcher/spawn/descendants.h"
#include "launcher/spawn/mpi_leftovers.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"
#include "runtime/net/host/host_candidates.h"

namespace distrun::launcher {
namespace {

constexpr int kControl = kKeyOfParent + 1;
// MPI's launcher ends when its ranks have ended, or on TERM. It then tells its daemons on other hosts to end.
constexpr Duration kTimeByItself = std::chrono::seconds(5);
constexpr Duration kTimeOfTerm = std::chrono::seconds(3);
// With a lost host it does not end by itself. It only tells its other daemons to end.
constexpr Duration kTimeOfTermWithoutHost = std::chrono::milliseconds(500);
// The time for agents on this host, among other leftover processes, to end their ranks and to clean up.
constexpr Duration kTimeOfLeftovers = std::chrono::seconds(2);
// Processes that KILL does not end within this time are held by the kernel.
constexpr Duration kTimeOfKill = std::chrono::seconds(5);
// While it kills, the guard looks for newly forked processes at this interval.
constexpr Duration kLookAgain = std::chrono::milliseconds(50);

// The guard's message to distrun's launcher: first that MPI's launcher has started, then that it has ended.
struct Word {
  pid_t pid = 0;
  bool ended = false;
  int wait_status = 0;
};

void send_word(const Word& word) {
  [[maybe_unused]] const ssize_t n = ::send(kControl, &word, sizeof word, MSG_NOSIGNAL);
}

class Guard {
 public:
  Guard(Process mpi, SignalSource signals, Environment environment)
      : mpi_(std::move(mpi)), signals_(std::move(signals)), environment_(std::move(environment)) {
    seen_.insert(mpi_.pid());
    send_word({.pid = mpi_.pid()});
  }

  void run() {
    while (!over_) {
      poller_.clear();
      if (!leftover_) poller_.watch(kControl, POLLIN, [this](short) { take_orders(); });
      poller_.watch(signals_.fd(), POLLIN, [this](short) { (void)signals_.take(); });
      if (!poller_.wait(deadline_).ok()) break;
      reap();
      act(Clock::now());
    }
    remove_leftovers_of(seen_, net::host_name(), ::geteuid(), open_mpi_base(environment_));
  }

 private:
  enum class Stage { kRuns, kByItself, kTerm, kRest, kKill };

  // The end of distrun's launcher closes the channel, which is its last order.
  void take_orders() {
    char words[16];
    const ssize_t n = ::read(kControl, words, sizeof words);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
      leftover_ = true;
      return end_soon(Stage::kTerm);
    }
    for (const char word : std::string_view(words, static_cast<std::size_t>(n))) {
      if (word == 'h') look();
      if (word == 'f') end_soon(Stage::kByItself);
      if (word == 'l') {
        time_of_term_ = kTimeOfTermWithoutHost;
        end_soon(Stage::kTerm);
      }
      if (word == 't') end_soon(Stage::kTerm);
      if (word == 'k') end_soon(Stage::kKill);
    }
  }

  // Remembers which processes belong to MPI's launcher: the folders of its daemons carry their pids.
  std::vector<ProcessInfo> look() {
    std::vector<ProcessInfo> out = descendants();
    for (const ProcessInfo& process : out) seen_.insert(process.pid);
    return out;
  }

  void end_soon(Stage stage) {
    if (stage <= stage_) return;
    enter(stage, Clock::now());
  }

  void enter(Stage stage, TimePoint now) {
    stage_ = stage;
    const std::vector<ProcessInfo> rest = look();
    switch (stage) {
      case Stage::kRuns:
        break;
      case Stage::kByItself:
        next_ = now + kTimeByItself;
        break;
      case Stage::kTerm:
        mpi_.signal(SIGTERM);
        mpi_.signal(SIGCONT);
        next_ = now + time_of_term_;
        break;
      case Stage::kRest:
        signal_processes(rest, SIGTERM);
        signal_processes(rest, SIGCONT);
        next_ = now + kTimeOfLeftovers;
        break;
      case Stage::kKill:
        next_ = now + kTimeOfKill;
        break;
    }
  }

  void reap() {
    int status = 0;
    for (;;) {
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid == mpi_.pid()) {
        mpi_.reaped();
        send_word({.pid = pid, .ended = true, .wait_status = status});
      }
      if (pid > 0) continue;
      childless_ = pid < 0 && errno == ECHILD;
      return;
    }
  }

  void act(TimePoint now) {
    deadline_.reset();
    if (stage_ == Stage::kRuns) return;
    if (childless_) {
      over_ = true;
      return;
    }
    const bool mpi_gone = !mpi_.running();
    if ((stage_ == Stage::kByItself || stage_ == Stage::kTerm) && mpi_gone) enter(Stage::kRest, now);
    if (stage_ == Stage::kByItself && now >= next_) enter(Stage::kTerm, now);
    if ((stage_ == Stage::kTerm || stage_ == Stage::kRest) && now >= next_) enter(Stage::kKill, now);
    deadline_ = next_;
    if (stage_ != Stage::kKill) return;
    signal_processes(look(), SIGKILL);
    over_ = now >= next_;
    deadline_ = now + kLookAgain;
  }

  Process mpi_;
  SignalSource signals_;
  const Environment environment_;
  Poller poller_;
  std::set<pid_t> seen_;
  Stage stage_ = Stage::kRuns;
  TimePoint next_{};  // when the stage is over
  Duration time_of_term_ = kTimeOfTerm;
  std::optional<TimePoint> deadline_;
  bool leftover_ = false;
  bool childless_ = false;
  bool over_ = false;
};

// The guard must not keep the pipes of MPI's launcher open, or their readers would wait for it.
void let_go_of_streams() {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd = 0; fd < kKeyOfParent; ++fd) ::dup2(null.get(), fd);
  ::close(kKeyOfParent);
}

}  // namespace

Result<MpiGuard> MpiGuard::start(const ProcessSpec& mpi) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno_status("make a socket pair", errno);
  MpiGuard out;
  out.control_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  ::fcntl(out.control_.get(), F_SETFL, O_NONBLOCK);
  ProcessSpec spec = mpi;
  spec.program = own_executable();
  spec.argv = {"distrun", "agent", "--mpi-guard", mpi.program};
  spec.argv.insert(spec.argv.end(), mpi.argv.begin(), mpi.argv.end());
  spec.descriptors.emplace_back(theirs.get(), kControl);
  auto process = start_process(spec);
  if (!process.ok()) return process.status();
  out.process_ = *std::move(process);
  out.name_ = mpi.argv.front();
  return out;
}

const std::optional<CarrierEnd>& MpiGuard::ended() {
  while (!end_ && control_.valid()) {
    Word word;
    const ssize_t n = ::recv(control_.get(), &word, sizeof word, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n == static_cast<ssize_t>(sizeof word)) {
      mpi_ = word.pid;
      if (word.ended) end_ = CarrierEnd{.name = name_, .pid = word.pid, .wait_status = word.wait_status};
      continue;
    }
    // The guard has ended. The kernel then kills MPI's launcher.
    killed_ = true;
    end_ = CarrierEnd{.name = "distrun's guard of " + name_, .pid = process_.pid(), .wait_status = SIGKILL};
  }
  return end_;
}

bool MpiGuard::gone() {
  // The job's loop reaps all children, so this process may not be a child any more.
  if (process_.running() && ::waitpid(process_.pid(), nullptr, WNOHANG) != 0) process_.reaped();
  return !process_.running();
}

void MpiGuard::clean_up_if_killed(const Environment& environment) {
  (void)ended();
  if (killed_ && mpi_ > 0) {
    remove_leftovers_of({mpi_}, net::host_name(), ::geteuid(), open_mpi_base(environment));
  }
}

void MpiGuard::order(char word) {
  if (!control_.valid()) return;
  [[maybe_unused]] const ssize_t n = ::send(control_.get(), &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int mpi_guard_main(const std::vector<std::string>& words, const Environment& environment) {
  if (words.size() < 2) return exit_code::kUsage;
  become_subreaper();
  // With another name, `pkill distrun` ends the job here but does not kill this guard.
  ::prctl(PR_SET_NAME, "dr-guard");
  ::signal(SIGTERM, SIG_IGN);  // only distrun's launcher decides
  ::fcntl(kControl, F_SETFD, FD_CLOEXEC);
  auto signals = SignalSource::create({SIGCHLD}, {});
  if (!signals.ok()) return exit_code::kInternal;
  ProcessSpec spec;
  spec.program = words.front();
  spec.argv.assign(words.begin() + 1, words.end());
  for (const auto& [name, value] : environment) spec.environment.push_back(name + "=" + value);
  spec.descriptors = {{0, 0}, {1, 1}, {2, 2}, {kKeyOfParent, kKeyOfParent}};
  spec.ignore_terminal = true;
  spec.die_with_parent = true;
  auto mpi = start_process(spec);
  if (!mpi.ok()) return exit_code::kUnusable;
  let_go_of_streams();
  Guard(*std::move(mpi), *std::move(signals), environment).run();
  return 0;
}

}  // namespace distrun::launcher
