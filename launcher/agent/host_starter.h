// Starts the agents of other hosts by ssh, on behalf of the head. These agents connect to the head by themselves. The
// ssh processes stay until the agents end, because things that belong to a login (credentials, a session) may end with
// it.
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
  // `environment`: this host's own environment, for ssh.
  HostStarter(const StartHosts& order, const Environment& environment);
  void watch(Poller& poller);
  // Kills the ssh process of a lost host. Otherwise it would wait until the kernel ends its connection. The agent still
  // calls ended() for it.
  void end(int index) const;
  // True if `pid` was an ssh process of this object.
  bool ended(pid_t pid, int status);
  std::vector<HostFailed> take_failures();
  // The ssh processes that still run.
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
