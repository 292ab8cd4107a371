#include "launcher/agent/preparation.h"

#include <utility>

#include "launcher/agent/preflight/python_module.h"
#include "launcher/agent/preflight/scan.h"
#include "launcher/exit_codes.h"
#include "launcher/version.h"
#include "runtime/net/host/host_candidates.h"

namespace distrun::launcher {

Preparation::Answer Preparation::prepare(const Prepare& order, const Environment& own, const Environment& given) {
  if (order.protocol != kAgentProtocol) {
    return Refused{.exit_code = exit_code::kUnusable,
                   .text = "host " + order.host + " has distrun " + kVersion + ", and the launcher is distrun " +
                           order.version + ". Install the same version on all hosts"};
  }
  job_ = order;
  ready_ = false;
  Prepared answer;
  answer.facts.reasons = take_host_own(job_->common, own);
  for (const auto& [name, value] : given) job_->common.environment[name] = value;
  answer.facts.topology = scan_topology(order.sysroot);
  answer.facts.topology.visible_devices = visible_devices(job_->common.environment);
  answer.facts.machine = machine_identity();
  answer.facts.name = net::host_name();
  if (order.ask) return answer;
  if (auto refused = find_programs()) return *std::move(refused);
  auto ports = HeldPorts::hold(order.ports);
  if (!ports.ok()) return unusable(ports.status());
  ports_ = *std::move(ports);
  answer.facts.ports = ports_.numbers();
  // With one host, all ranks are reached over the loopback interface. With several, probes will tell.
  answer.facts.address = "127.0.0.1";
  ready_ = true;
  if (!order.probe) return answer;
  auto listener = ProbeListener::open();
  if (!listener.ok()) return unusable(listener.status());
  listener_.emplace(*std::move(listener));
  answer.facts.candidates = net::scan_addresses();
  answer.facts.probe_port = listener_->port();
  return answer;
}

std::optional<Refused> Preparation::find_programs() {
  program_ = find_program(job_->common, job_->host);
  if (!program_.refused) program_.refused = missing_module(job_->common, program_.path, job_->host);
  if (program_.refused || job_->common.server.empty()) return program_.refused;
  server_ = find_server(job_->common, job_->host);
  return server_.refused;
}

Refused Preparation::unusable(const Status& why) const {
  return {.exit_code = exit_code::kUnusable, .text = "host " + job_->host + ": " + why.message()};
}

Status Preparation::probe(const Probe& order) {
  const auto key = net::JobKey::from_bytes(reinterpret_cast<const unsigned char*>(order.key.data()), order.key.size());
  if (!key.ok() || !job_ || !listener_ || prober_) {
    return {Errc::kInvalidArgument, "agent: a probe at the wrong time"};
  }
  const ProbeSelf self{.host = order.host, .job_id = job_->job_id};
  listener_->answer(*key, self);
  ProbeLimits limits;
  if (order.limit_ms != 0) limits.each = limits.all = limits.large = std::chrono::milliseconds(order.limit_ms);
  prober_ = std::make_unique<Prober>(*key, self, order.targets, limits);
  return {};
}

std::optional<Probed> Preparation::progress(TimePoint now) {
  if (!prober_) return std::nullopt;
  prober_->progress(now);
  if (!prober_->done()) return std::nullopt;
  Probed out{.results = prober_->take_results()};
  prober_.reset();
  return out;
}

void Preparation::begin(const Start& order) {
  listener_.reset();
  if (!order.no_grpc_proxy.empty()) job_->common.environment["no_grpc_proxy"] = order.no_grpc_proxy;
}

// A host without a free port can still probe the others.
std::uint16_t Preparation::listen_again(bool listen) {
  prober_.reset();
  listener_.reset();
  if (!listen) return 0;
  auto listener = ProbeListener::open();
  if (!listener.ok()) return 0;
  listener_.emplace(*std::move(listener));
  return listener_->port();
}

void Preparation::watch_probes(Poller& poller) {
  if (listener_) listener_->watch(poller);
  if (prober_) prober_->watch(poller);
}

}  // namespace distrun::launcher
