// The start of a job with many hosts: running agents start others by ssh, and these connect to the head by themselves.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/agents/agent_links.h"
#include "launcher/job/start/start_queue.h"
#include "launcher/plan/network/network.h"
#include "launcher/spawn/agent_spawner.h"
#include "runtime/base/log.h"
#include "runtime/net/identity/world.h"
#include "runtime/net/secure/secure_socket.h"

namespace distrun::launcher {

class AgentTree {
 public:
  struct Config {
    int fan_out = 32;
    std::string job_id;
    NetworkFilter network;
    bool verbose = false;
    std::function<void(const std::string&)> print;
    const Log* log = nullptr;  // warnings about unknown peers at the port
  };
  // The other arguments must outlive it.
  AgentTree(Config config, AgentLinks& agents, StartQueue& queue, const AgentSpawner& spawner);

  // Marks hosts in the queue that other hosts start. If this fails for any reason, there is no tree: this machine
  // starts all agents, and the other functions do nothing.
  void open();
  void close() { listener_.reset(); }  // all have joined, or never will
  // This agent runs: orders it to start its hosts.
  void order_starts(AgentLink& starter, TimePoint now);
  using OnJoined = std::function<void(AgentLink&, AgentHandle, TimePoint)>;
  void watch(Poller& poller, const OnJoined& on_joined);
  // The host that started the agent with this connection. None: this machine did.
  [[nodiscard]] std::optional<std::size_t> starter_of(std::size_t host, const AgentHandle& handle) const;
  // From now on this machine starts the hosts that `starter` had to start, or one of them. `why` is the reason.
  void host_failed(const AgentLink& starter, const HostFailed& fault);
  void take_back_from(const AgentLink& starter, const std::string& why);
  void take_back_late(TimePoint now);

 private:
  [[nodiscard]] std::optional<std::size_t> joining(const net::Hello& peer) const;
  [[nodiscard]] std::string refusal(const net::Hello& peer) const;
  void start_from_here(std::size_t index, const std::string& why);

  Config config_;
  AgentLinks& agents_;
  StartQueue& queue_;
  const AgentSpawner& spawner_;
  std::vector<int> starters_;  // by host, from start_tree()
  net::JobKey key_ = net::JobKey::generate();
  std::vector<std::string> addresses_;
  std::unique_ptr<net::SecureListener> listener_;  // null: there is no tree
  bool failure_reported_ = false;                  // the user knows that some host could not start another one
};

}  // namespace distrun::launcher
