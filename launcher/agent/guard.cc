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
#include "launcher/agent/lease/guard_watch.h"
#include "launcher/exit_codes.h"
#include "launcher/spawn/cgroup.h"
#include "launcher/spawn/descendants.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"
#include "runtime/base/thread.h"

namespace distrun::launcher {
namespace {

// If the user typed the command, or this is the first process of a container, these signals are meant for the agent.
// Elsewhere they are ignored from the start.
constexpr std::initializer_list<int> kOfTerminal = {SIGINT, SIGHUP, SIGQUIT};

// Signal handling until the agent reads its signals itself (Agent::create). Before that, it may search for its head for
// long.
void begin_as_agent() {
  for (const int number : kOfTerminal) ::signal(number, SIG_IGN);
  mask_signal(SIG_UNBLOCK, SIGTERM);
}

void pass_on(int number, pid_t agent) {
  if (number == SIGCHLD) return;
  const bool same = number == SIGUSR1 || number == SIGUSR2 || number == SIGCONT || number == SIGQUIT;
  ::kill(agent, same ? number : SIGTERM);
}

// Kills all processes below the agent.
void end_ranks(pid_t agent) {
  std::vector<ProcessInfo> below = descendants();
  std::erase_if(below, [agent](const ProcessInfo& one) { return one.pid == agent; });
  signal_processes(below, SIGKILL);
}

// Kills the remaining processes until none is left, or until the rest cannot be killed.
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

// Returns when the agent has ended, with its wait status.
int watch_agent(pid_t agent, SignalSource& signals, const LeaseEnd& lease_end, GuardWatch& watch) {
  // The guard does not read standard input, it only sees its end. This end is the last order to the agent, and a
  // stopped agent does not follow it.
  bool head_gone = false;
  BootTimer timer;
  Poller poller;
  int status = 0;
  for (;;) {
    const auto end = lease_end.get();
    timer.set(end ? std::optional(*end + GuardWatch::kTurn) : std::nullopt);
    poller.clear();
    if (!head_gone) poller.watch(0, POLLRDHUP, [&](short) { head_gone = true; });
    poller.watch(signals.fd(), POLLIN, [&](short) {
      for (const int number : signals.take()) pass_on(number, agent);
    });
    poller.watch(lease_end.begun(), POLLIN, [&](short) { lease_end.take_begun(); });
    if (!watch.lease_over()) poller.watch(timer.fd(), POLLIN, [](short) {});
    if (!poller.wait(watch.deadline()).ok()) return status;
    if (::waitpid(agent, &status, WNOHANG | WUNTRACED | WCONTINUED) == agent) {
      if (!WIFSTOPPED(status) && !WIFCONTINUED(status)) return status;
      if (WIFSTOPPED(status)) watch.agent_stopped(Clock::now());
      if (WIFCONTINUED(status)) watch.agent_runs();
    }
    if (head_gone) watch.head_gone(Clock::now());
    const GuardWatch::Actions actions = watch.next(Clock::now(), boot_time(), lease_end.get());
    if (actions.end_ranks) end_ranks(agent);
    if (actions.kill_agent) ::kill(agent, SIGKILL);
  }
}

}  // namespace

std::optional<int> stand_guard(OrdersBy orders, const LeaseEnd& lease_end) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (orders == OrdersBy::kConnection) ::dup2(null.get(), 0);
  become_subreaper();
  auto signals =
      SignalSource::create({SIGCHLD, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGINT, SIGHUP, SIGQUIT}, kOfTerminal);
  if (!signals.ok()) return exit_code::kInternal;
  const pid_t agent = ::fork();
  if (agent == 0) {
    begin_as_agent();
    return std::nullopt;
  }
  if (agent < 0) {
    const int error = errno;
    std::fprintf(stderr, "distrun: cannot start a process: %s%s\n", std::strerror(error),
                 error == EAGAIN ? kProcessLimit : "");
    return exit_code::kUnusable;
  }
  // With another name, `pkill distrun` ends the job here but does not kill both agent and guard.
  ::prctl(PR_SET_NAME, "dr-guard");
  // Standard output belongs to the agent alone: its end shows the head that the agent is gone.
  ::dup2(null.get(), 1);
  GuardWatch watch;
  const int status = watch_agent(agent, *signals, lease_end, watch);
  ::dup2(null.get(), 0);
  sweep();
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  end_abandoned_cgroups("/");
  return watch.lease_over() ? exit_code::kHostLost : exit_code::kSignalBase + WTERMSIG(status);
}

}  // namespace distrun::launcher
