// Before ranks start, hosts try each other's addresses and those of the head. This class decides which addresses each
// host tries, answers probes of the head, and chooses the addresses from the results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/preflight/probe.h"
#include "launcher/plan/network/network.h"
#include "launcher/protocol/messages.h"
#include "launcher/spawn/poller.h"
#include "runtime/base/status.h"
#include "runtime/net/identity/world.h"

namespace distrun::launcher {

class ProbeRound {
 public:
  ProbeRound(const net::JobKey& key, std::string job_id, NetworkFilter network);

  // From now on the head answers probes. A second call does nothing.
  Status listen();
  void watch(Poller& poller);
  // Adds the hosts in their order. Not needed if only the head is probed.
  void add(const std::string& name, const HostFacts& facts);
  [[nodiscard]] Probe order(int host) const;
  // `reports`: the results by the host that probed.
  [[nodiscard]] Result<AddressChoice> choose(const std::vector<std::vector<ProbeResult>>& reports) const;

 private:
  net::JobKey key_;
  std::string job_id_;
  NetworkFilter network_;
  std::optional<ProbeListener> listener_;
  std::vector<ProbedHost> hosts_;
  std::optional<ProbedHost> head_;
};

}  // namespace distrun::launcher
