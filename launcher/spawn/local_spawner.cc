#include "launcher/spawn/agent_spawner.h"

namespace distrun::launcher {
namespace {

class LocalSpawner : public AgentSpawner {
 public:
  explicit LocalSpawner(std::vector<std::string> environment) : environment_(std::move(environment)) {}

  Result<AgentHandle> start(const std::string&) override {
    auto down = make_pipe();
    if (!down.ok()) return down.status();
    auto up = make_pipe();
    if (!up.ok()) return up.status();
    ProcessSpec spec;
    // The file that runs now, even if the one on the disk has been replaced since.
    spec.program = "/proc/self/exe";
    spec.argv = {"distrun", "agent"};
    spec.environment = environment_;
    spec.descriptors = {{down->first.get(), 0}, {up->second.get(), 1}, {2, 2}};
    // Signals of the terminal are for the head, which tells the agent what to do.
    spec.ignore_terminal = true;
    auto process = start_process(spec);
    if (!process.ok()) return process.status();
    return AgentHandle{*std::move(process), FramePipe(std::move(up->first), std::move(down->second))};
  }

 private:
  std::vector<std::string> environment_;
};

}  // namespace

std::unique_ptr<AgentSpawner> make_local_spawner(const std::vector<std::string>& environment) {
  return std::make_unique<LocalSpawner>(environment);
}

}  // namespace distrun::launcher
