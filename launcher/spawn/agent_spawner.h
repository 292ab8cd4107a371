// Starts the agent of one host. Locally by fork and exec; ssh, srun or any command come as further implementations.
#pragma once

#include <memory>
#include <string>

#include "launcher/spawn/frames.h"
#include "launcher/spawn/process.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct AgentHandle {
  Process process;  // the agent itself, or what carries it (ssh)
  FramePipe pipe;
};

class AgentSpawner {
 public:
  virtual ~AgentSpawner() = default;
  // Does not wait for the agent to answer.
  virtual Result<AgentHandle> start(const std::string& host) = 0;
};

// Runs this very binary as `distrun agent` on this machine.
std::unique_ptr<AgentSpawner> make_local_spawner(const std::vector<std::string>& environment);

}  // namespace distrun::launcher
