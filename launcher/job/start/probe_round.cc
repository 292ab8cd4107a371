#include "launcher/job/start/probe_round.h"

#include <utility>

namespace distrun::launcher {

ProbeRound::ProbeRound(const net::JobKey& key, std::string job_id, NetworkFilter network)
    : key_(key), job_id_(std::move(job_id)), network_(std::move(network)) {}

Status ProbeRound::listen() {
  if (listener_) return {};
  auto listener = ProbeListener::open();
  if (!listener.ok()) return listener.status();
  listener_.emplace(*std::move(listener));
  listener_->answer(key_, {.job_id = job_id_});
  head_ = ProbedHost{
      .name = "this machine", .addresses = eligible(net::scan_addresses(), network_), .port = listener_->port()};
  return {};
}

void ProbeRound::watch(Poller& poller) {
  if (listener_) listener_->watch(poller);
}

void ProbeRound::add(const std::string& name, const HostFacts& facts) {
  hosts_.push_back({.name = name, .addresses = eligible(facts.candidates, network_), .port = facts.probe_port});
}

Probe ProbeRound::order(int host) const {
  const auto* key = reinterpret_cast<const std::byte*>(key_.data());
  return {.key = {key, key + net::JobKey::kBytes}, .host = host, .targets = probe_targets(host, hosts_, head_)};
}

Result<AddressChoice> ProbeRound::choose(const std::vector<std::vector<ProbeResult>>& reports) const {
  return choose_addresses(hosts_, head_, reports);
}

}  // namespace distrun::launcher
