#include "launcher/agent/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "launcher/agent/ending.h"
#include "launcher/exit_codes.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/descendants.h"
#include "launcher/spawn/heartbeat.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"
#include "runtime/base/thread.h"

namespace distrun::launcher {
namespace {

// An agent whose head is gone has ended by then, unless it is stopped or finds what cannot be killed.
constexpr Duration kPatience = std::chrono::seconds(2);

// The head has given up a stopped agent long before, but where the network has gone too nothing here tells so.
// An agent is stopped by somebody's hand, so whatever host_timeout is.
constexpr Duration kStopped = std::chrono::seconds(15);

std::optional<TimePoint> after(std::optional<TimePoint> time, Duration wait) {
  if (!time) return std::nullopt;
  return *time + wait;
}

// Where somebody has typed the command, or it is a container's first process, these are for it and mean the same as
// TERM. Elsewhere they are ignored from the start.
constexpr std::initializer_list<int> kOfTerminal = {SIGINT, SIGHUP, SIGQUIT};

// Until it reads its signals itself (Agent::create): it may look for its head for long.
void begin_as_agent() {
  for (const int number : kOfTerminal) ::signal(number, SIG_IGN);
  mask_signal(SIG_UNBLOCK, SIGTERM);
}

void pass_on(int number, pid_t agent) {
  if (number == SIGCHLD) return;
  ::kill(agent, number == SIGUSR1 || number == SIGUSR2 ? number : SIGTERM);
}

// Kills what is left until nothing is, or cannot be killed.
void sweep() {
  Ending ending{Duration::zero()};
  ending.kill_now(Clock::now());
  Poller poller;
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    const auto rest = descendants();
    const auto actions = ending.next({.started = true, .any_child = !rest.empty(), .now = Clock::now()});
    if (actions.kill_all) signal_processes(rest, SIGKILL);
    if (actions.done || actions.give_up) return;
    poller.clear();
    if (!poller.wait(ending.deadline()).ok()) return;
  }
}

}  // namespace

std::optional<int> stand_guard(OrdersBy orders) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (orders == OrdersBy::kConnection) ::dup2(null.get(), 0);
  become_subreaper();
  auto signals = SignalSource::create({SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGHUP, SIGQUIT}, kOfTerminal);
  if (!signals.ok()) return exit_code::kInternal;
  const pid_t agent = ::fork();
  if (agent == 0) {
    begin_as_agent();
    return std::nullopt;
  }
  if (agent < 0) {
    const int error = errno;
    std::fprintf(stderr, "distrun agent: a process cannot be started: %s%s\n", std::strerror(error),
                 error == EAGAIN ? kProcessLimit : "");
    return exit_code::kUnusable;
  }
  // pkill distrun is to end the job here, and not both that would see to it.
  ::prctl(PR_SET_NAME, "dr-guard");
  // The agent's alone: its end is how the head sees it go.
  ::dup2(null.get(), 1);
  // Standard input is not read here, only its end is seen: it is the agent's last order, and one that is stopped does
  // not follow it.
  bool head_gone = false;
  std::optional<TimePoint> gone_at;
  std::optional<TimePoint> stopped_at;
  std::optional<TimePoint> kill_at;  // max(): it has been
  Poller poller;
  int status = 0;
  for (;;) {
    poller.clear();
    if (!head_gone) poller.watch(0, POLLRDHUP, [&](short) { head_gone = true; });
    poller.watch(signals->fd(), POLLIN, [&](short) {
      for (const int number : signals->take()) pass_on(number, agent);
    });
    if (!poller.wait(kill_at).ok()) break;
    if (::waitpid(agent, &status, WNOHANG | WUNTRACED | WCONTINUED) == agent) {
      if (!WIFSTOPPED(status) && !WIFCONTINUED(status)) break;
      stopped_at = WIFSTOPPED(status) ? std::optional(Clock::now()) : std::nullopt;
    }
    if (kill_at == TimePoint::max()) continue;
    if (head_gone && !gone_at) gone_at = Clock::now();
    const TimePoint now = Clock::now();
    if (kill_at && now > *kill_at + Heartbeat::kSuspended) {
      // Stopped itself, as a batch system's suspend does with both, so the agent gets the time that it had not.
      if (gone_at) gone_at = now;
      if (stopped_at) stopped_at = now;
    }
    kill_at = earlier(after(gone_at, kPatience), after(stopped_at, kStopped));
    if (kill_at && now >= *kill_at) {
      ::kill(agent, SIGKILL);
      kill_at = TimePoint::max();
    }
  }
  ::dup2(null.get(), 0);
  sweep();
  if (WIFSIGNALED(status)) end_abandoned_cgroups("/");
  return WIFSIGNALED(status) ? exit_code::kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace distrun::launcher
