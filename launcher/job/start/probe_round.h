// Hosts of a job try each other's addresses, and those of the head, before ranks start: what each is to try, where the
// head answers, and which addresses follow from the answers.
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

  // From here on the head answers. Does nothing the second time.
  Status listen();
  void watch(Poller& poller);
  // The hosts, in their order; none is known where the head alone is tried.
  void add(const std::string& name, const HostFacts& facts);
  [[nodiscard]] Probe order(int host) const;
  // By the host that tried.
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
