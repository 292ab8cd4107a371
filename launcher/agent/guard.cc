#include "launcher/agent/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/agent/ending.h"
#include "launcher/exit_codes.h"
#include "launcher/spawn/descendants.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/signals.h"

namespace distrun::launcher {
namespace {

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

std::optional<int> stand_guard() {
  become_subreaper();
  auto signals = SignalSource::create({SIGCHLD, SIGTERM}, {});
  if (!signals.ok()) return exit_code::kInternal;
  const pid_t agent = ::fork();
  if (agent == 0) return std::nullopt;
  if (agent < 0) return exit_code::kInternal;
  // The agent's alone: their ends are how head and agent see each other go.
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  ::dup2(null.get(), 1);
  Poller poller;
  int status = 0;
  for (;;) {
    poller.clear();
    poller.watch(signals->fd(), POLLIN, [&](short) {
      for (const int number : signals->take()) {
        if (number == SIGTERM) ::kill(agent, SIGTERM);
      }
    });
    if (!poller.wait(std::nullopt).ok()) break;
    if (::waitpid(agent, &status, WNOHANG) == agent) break;
  }
  sweep();
  return WIFSIGNALED(status) ? exit_code::kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace distrun::launcher
