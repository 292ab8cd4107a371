// Agents that connect by themselves: `distrun agent --connect` on hosts that another system starts (Kubernetes, Ray, a
// batch system). The head waits until all have connected. After that they are agents like any other.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/spawn/agent_spawner.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::launcher {

class DialIn {
 public:
  // `address`: for instance "*:7000", in the forms that listen_secure() accepts. Port 0: any free port.
  static Result<DialIn> listen(const std::string& address, const net::JobKey& key);
  [[nodiscard]] const std::string& address() const { return listener_->address(); }

  // Blocks until this number of agents is connected. An agent that disconnects may connect again. kTimeout and
  // kInterrupted name the agents that have connected, those that have gone, and those that were turned away.
  // kInterrupted: a signal asks for the end; ended_by() is its number.
  Status wait(std::size_t agents, TimePoint deadline);
  [[nodiscard]] int ended_by() const { return ended_by_; }
  // In the order of their names: node2 before node10.
  [[nodiscard]] std::vector<std::string> hosts() const;
  // Returns the connections, and turns away agents that come later; call it once, as the last.
  std::unique_ptr<AgentSpawner> spawner();

 private:
  DialIn() = default;
  void forget_gone();
  [[nodiscard]] std::string refusal(const net::Hello& peer, std::size_t agents);
  void take(std::unique_ptr<net::SecureSocket> agent);
  [[nodiscard]] std::string who_has_come(std::size_t agents) const;

  std::unique_ptr<const Log> log_ = std::make_unique<Log>("warning");  // warnings about unknown peers
  std::unique_ptr<net::SecureListener> listener_;
  std::map<std::string, std::unique_ptr<net::SecureSocket>> agents_;  // by host
  std::set<std::string> gone_;                                        // hosts whose agents came and went
  std::set<std::string> turned_away_;                                 // names of agents, as they gave them
  int ended_by_ = 0;
};

// True if `a` comes before `b`, where digits are compared as numbers.
bool before_by_number(const std::string& a, const std::string& b);

}  // namespace distrun::launcher
