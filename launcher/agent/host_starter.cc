#include "launcher/agent/host_starter.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "launcher/agent/join.h"

namespace distrun::launcher {
HostStarter::HostStarter(const StartHosts& order, const Environment& environment)
    : spawner_(make_spawner({.environment = environment,
                             .own_names = {},
                             .ssh = order.ssh,
                             .launch_with = {},
                             .binary = order.binary,
                             .how = "--join"})) {
  for (const StartHosts::Host& host : order.hosts) start(order, host);
}

void HostStarter::start(const StartHosts& order, const StartHosts::Host& host) {
  auto handle = spawner_->start(host.name, host.user);
  if (!handle.ok()) {
    failures_.push_back({.index = host.index, .text = handle.status().message()});
    return;
  }
  const Join join{.index = host.index, .job_id = order.job_id, .key = order.key, .addresses = order.addresses};
  handle->pipe.await(kAgentGreeting);
  handle->pipe.send(kJoinFrame, encode(join));
  carriers_.push_back(std::make_unique<Carrier>(Carrier{host.index, *std::move(handle), {}}));
}

void HostStarter::watch(Poller& poller) {
  for (const auto& carrier : carriers_) {
    Carrier* const it = carrier.get();
    if (it->handle.errors.valid()) poller.watch(it->handle.errors.get(), POLLIN, [this, it](short) { read(*it); });
    FramePipe& pipe = it->handle.pipe;
    if (!pipe.closed()) poller.watch(pipe.in(), POLLIN, [&pipe](short) { pipe.receive(); });
    if (pipe.wants_write()) poller.watch(pipe.out(), POLLOUT, [&pipe](short) { pipe.flush(); });
  }
}

void HostStarter::read(Carrier& carrier) { read_last_words(carrier.handle.errors, carrier.printed); }

void HostStarter::end(int index) const {
  for (const auto& carrier : carriers_) {
    if (carrier->index == index) carrier->handle.process.signal(SIGKILL);
  }
}

bool HostStarter::ended(pid_t pid, int status) {
  const auto found = std::find_if(carriers_.begin(), carriers_.end(),
                                  [pid](const auto& carrier) { return carrier->handle.process.pid() == pid; });
  if (found == carriers_.end()) return false;
  Carrier& carrier = **found;
  read(carrier);
  carrier.handle.pipe.receive();
  const std::string text = WIFSIGNALED(status)
                               ? "ssh was killed by signal " + std::to_string(WTERMSIG(status))
                               : start_failure({.exit_code = WEXITSTATUS(status),
                                                .printed = carrier.printed + carrier.handle.pipe.noise(),
                                                .by_ssh = true,
                                                .greeted = !carrier.handle.pipe.awaits_greeting()});
  failures_.push_back({.index = carrier.index, .text = text});
  carriers_.erase(found);
  return true;
}

std::vector<HostFailed> HostStarter::take_failures() { return std::exchange(failures_, {}); }

std::vector<pid_t> HostStarter::carriers() const {
  std::vector<pid_t> out;
  for (const auto& carrier : carriers_) out.push_back(carrier->handle.process.pid());
  return out;
}

}  // namespace distrun::launcher
