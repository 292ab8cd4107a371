// Starts the agents of other hosts by ssh, for the head. They dial it by themselves; the ssh processes stay until those
// agents end, because what a login gives them (credentials, a session) may end with it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

class HostStarter {
 public:
  // `environment`: of ssh, this host's own.
  HostStarter(const StartHosts& order, const Environment& environment);
  void watch(Poller& poller);
  // This host is lost: its ssh would wait for it as long as the kernel does. ended() comes as ever.
  void end(int index) const;
  // True if it was one of ours.
  bool ended(pid_t pid, int status);
  std::vector<HostFailed> take_failures();
  // The ssh processes that have not ended.
  [[nodiscard]] std::vector<pid_t> carriers() const;

 private:
  struct Carrier {
    int index = 0;
    AgentHandle handle;
    std::string printed;
  };
  void start(const StartHosts& order, const StartHosts::Host& host);
  void read(Carrier& carrier);

  std::unique_ptr<AgentSpawner> spawner_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
  std::vector<HostFailed> failures_;
};

}  // namespace distrun::launcher
