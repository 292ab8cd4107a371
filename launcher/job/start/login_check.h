// Finds out why ssh runs and no agent greets. The start-up files of a login shell may read input, or start another
// program. A second agent, whose input is at its end, shows which it is. Nothing is sent to either of them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/spawn/agent_spawner.h"
#include "launcher/spawn/poller.h"
#include "launcher/spawn/remote_command.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {

class LoginCheck {
 public:
  static constexpr Duration kQuiet = std::chrono::seconds(5);  // before the second agent
  // After the second one has come. The first one is as fast, if the host was only slow.
  static constexpr Duration kGrace = std::chrono::seconds(5);
  static constexpr int kMostLogins = 8;  // at a time

  // Both must outlive it.
  LoginCheck(const AgentLinks& agents, AgentSpawner& spawner) : agents_(agents), spawner_(spawner) {}

  struct Fault {
    std::size_t host = 0;
    std::string text;
  };
  // Starts the second agents that are due. Returns the hosts whose agents will not come, each once.
  std::vector<Fault> look(TimePoint now);
  void watch(Poller& poller);
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  // The second agent and its ssh. They end with this object.
  struct Login {
    explicit Login(AgentHandle started);
    Login(const Login&) = delete;
    Login& operator=(const Login&) = delete;
    ~Login();
    AgentHandle handle;
    std::string printed;
  };
  struct Host {
    TimePoint since;                // the agent's ssh runs, and nothing has come
    std::unique_ptr<Login> login;   // while the second agent runs
    bool asked = false;             // it was started
    std::optional<LoginFault> why;  // what it has shown
    TimePoint known;                // since when that is known
    bool reported = false;
  };
  [[nodiscard]] bool has_room() const;
  void start(const AgentLink& agent, Host& host);
  void read(Host& host, TimePoint now);

  const AgentLinks& agents_;
  AgentSpawner& spawner_;
  std::map<std::size_t, Host> hosts_;  // by index of the link
};

}  // namespace distrun::launcher
