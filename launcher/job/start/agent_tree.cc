#include "launcher/job/start/agent_tree.h"

#include <string_view>
#include <utility>

#include "launcher/agent/join.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/place/start_tree.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/launchers/store_contact.h"

namespace distrun::launcher {

AgentTree::AgentTree(Config config, AgentLinks& agents, StartQueue& queue, const AgentSpawner& spawner)
    : config_(std::move(config)), agents_(agents), queue_(queue), spawner_(spawner) {}

void AgentTree::open() {
  std::vector<bool> by_ssh;
  for (const auto& agent : agents_.all()) by_ssh.push_back(agent->by_ssh);
  starters_ = start_tree(by_ssh, config_.fan_out);
  const std::string reason = tree_reason(starters_, config_.fan_out);
  if (reason.empty()) return;
  auto listener = net::listen_secure("*:0", key_, {.purpose = {}, .job_id = config_.job_id}, config_.log);
  if (!listener.ok()) return;
  const auto own = net::parse_address((*listener)->address());
  if (!own.ok()) return;
  for (const Candidate& candidate : eligible(net::scan_addresses(), config_.network).candidates) {
    addresses_.push_back(net::with_port(candidate.address, own->port));
  }
  if (addresses_.empty()) return;
  listener_ = *std::move(listener);
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (starters_[i] != kHeadStarts) queue_.hand_over(i);
  }
  if (config_.verbose) config_.print(reason);
}

void AgentTree::order_starts(AgentLink& starter, TimePoint now) {
  const SshOptions* ssh = listener_ ? spawner_.ssh(starter.host, starter.user) : nullptr;
  if (ssh == nullptr) return;
  const auto* key = reinterpret_cast<const std::byte*>(key_.data());
  StartHosts order{.binary = own_binary(),
                   .ssh = *ssh,
                   .job_id = config_.job_id,
                   .key = {key, key + net::JobKey::kBytes},
                   .addresses = addresses_,
                   .hosts = {}};
  for (const auto& other : agents_.all()) {
    if (starters_[other->index] != static_cast<int>(starter.index) || !queue_.handed_over(other->index)) continue;
    order.hosts.push_back({.index = static_cast<int>(other->index), .name = other->host, .user = other->user});
    queue_.ordered(other->index, now);
  }
  if (!order.hosts.empty()) starter.send(ToAgent::kStartHosts, encode(order));
}

void AgentTree::watch(Poller& poller, const OnJoined& on_joined) {
  if (!listener_) return;
  poller.watch(listener_->fd(), POLLIN, [this, on_joined](short) {
    const TimePoint now = Clock::now();
    listener_->progress(
        now,
        [this](const net::Hello& peer) {
          const std::string why = refusal(peer);
          if (!why.empty() && config_.log != nullptr) {
            config_.log->warning("turned away " + printable(peer.purpose) + ": " + why);
          }
          return why;
        },
        [&](std::unique_ptr<net::SecureSocket> socket) {
          const auto index = joining(socket->peer());
          if (!index || !queue_.handed_over(*index)) return;
          queue_.arrived(*index, now);
          on_joined(agents_[*index],
                    {.process = {}, .pipe = FramePipe(std::move(socket)), .errors = {}, .remote = true}, now);
        });
  });
}

std::optional<std::size_t> AgentTree::starter_of(std::size_t host, const AgentHandle& handle) const {
  const bool joined = handle.pipe.is_connection() && host < starters_.size() && starters_[host] != kHeadStarts;
  return joined ? std::optional(static_cast<std::size_t>(starters_[host])) : std::nullopt;
}

std::optional<std::size_t> AgentTree::joining(const net::Hello& peer) const {
  const std::string_view purpose = kJoinPurpose;
  if (!peer.purpose.starts_with(purpose)) return std::nullopt;
  const auto index = parse_number(peer.purpose.substr(purpose.size()), 0, static_cast<int>(agents_.size()) - 1);
  return index ? std::optional(static_cast<std::size_t>(*index)) : std::nullopt;
}

std::string AgentTree::refusal(const net::Hello& peer) const {
  const auto index = joining(peer);
  if (!index) return "this is the port for agents that other agents of this job have started";
  return queue_.handed_over(*index) ? "" : "host " + agents_[*index].host + " has an agent already";
}

void AgentTree::host_failed(const AgentLink& starter, const HostFailed& fault) {
  if (!listener_ || fault.index < 0 || static_cast<std::size_t>(fault.index) >= agents_.size()) return;
  const auto index = static_cast<std::size_t>(fault.index);
  if (starters_[index] == static_cast<int>(starter.index)) start_from_here(index, fault.text);
}

void AgentTree::start_from_here(std::size_t index, const std::string& why) {
  if (!queue_.take_back(index)) return;
  AgentLink& agent = agents_[index];
  const std::string starter = agents_[static_cast<std::size_t>(starters_[index])].host;
  agent.tried = " (before that, host " + starter + " was to start it: " + why + ")";
  if (!config_.verbose || std::exchange(failure_reported_, true)) return;
  config_.print("host " + starter + " could not start the agent of host " + agent.host + ": " + why +
                ". This machine starts it, and others of which the same is true");
}

void AgentTree::take_back_late(TimePoint now) {
  if (!listener_) return;
  for (const std::size_t i : queue_.late(now)) start_from_here(i, "nothing has come of it in time");
}

void AgentTree::take_back_from(const AgentLink& starter, const std::string& why) {
  for (std::size_t i = 0; listener_ && i < agents_.size(); ++i) {
    if (starters_[i] == static_cast<int>(starter.index)) start_from_here(i, why);
  }
}

}  // namespace distrun::launcher
