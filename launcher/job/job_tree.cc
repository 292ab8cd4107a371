// The start where hosts are many: agents that are up start others by ssh, and these join by themselves.
#include <algorithm>
#include <string_view>
#include <utility>

#include "launcher/agent/join.h"
#include "launcher/job/job.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/place/start_tree.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/launchers/meeting.h"

namespace distrun::launcher {

// What stands in the way only means that this machine starts them all.
void Job::plan_tree() {
  std::vector<bool> by_ssh;
  for (const auto& agent : agents_) by_ssh.push_back(spawner_.ssh(agent->host, agent->user) != nullptr);
  Tree tree{.starters = start_tree(by_ssh, config_.fan_out)};
  const std::string reason = tree_reason(tree.starters, config_.fan_out);
  if (reason.empty()) return;
  auto door = net::listen_secure("*:0", tree.key, {.purpose = {}, .job_id = config_.plan.job_id}, &log_);
  if (!door.ok()) return;
  tree.door = *std::move(door);
  const auto own = net::parse_address(tree.door->address());
  if (!own.ok()) return;
  for (const Candidate& candidate : eligible(net::scan_addresses(), config_.network).candidates) {
    tree.addresses.push_back(net::with_port(candidate.address, own->port));
  }
  if (tree.addresses.empty()) return;
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (tree.starters[i] != kHeadStarts) queue_.hand_over(i);
  }
  if (config_.verbose) output_->say(reason);
  tree_.emplace(std::move(tree));
}

void Job::order_starts(Agent& agent, TimePoint now) {
  if (!tree_) return;
  const SshOptions* ssh = spawner_.ssh(agent.host, agent.user);
  if (ssh == nullptr) return;
  const auto* key = reinterpret_cast<const std::byte*>(tree_->key.data());
  StartHosts order{.binary = own_binary(),
                   .ssh = *ssh,
                   .job_id = config_.plan.job_id,
                   .key = {key, key + net::JobKey::kBytes},
                   .addresses = tree_->addresses,
                   .hosts = {}};
  for (const auto& other : agents_) {
    if (tree_->starters[other->index] != static_cast<int>(agent.index) || !queue_.handed_over(other->index)) continue;
    order.hosts.push_back({.index = static_cast<int>(other->index), .name = other->host, .user = other->user});
    queue_.told(other->index, now);
  }
  if (order.hosts.empty()) return;
  agent.handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kStartHosts), encode(order));
}

void Job::watch_door() {
  if (!tree_) return;
  poller_.watch(tree_->door->fd(), POLLIN, [this](short) {
    tree_->door->progress(
        Clock::now(), [this](const net::Hello& peer) { return refusal(peer); },
        [this](std::unique_ptr<net::SecureSocket> socket) { joined(std::move(socket)); });
  });
}

std::optional<std::size_t> Job::joining(const net::Hello& peer) const {
  const std::string_view purpose = kJoinPurpose;
  if (!peer.purpose.starts_with(purpose)) return std::nullopt;
  const auto index = parse_number(peer.purpose.substr(purpose.size()), 0, static_cast<int>(agents_.size()) - 1);
  return index ? std::optional(static_cast<std::size_t>(*index)) : std::nullopt;
}

std::string Job::refusal(const net::Hello& peer) const {
  const auto index = joining(peer);
  if (!index) return "this is the port for agents that other agents of this job have started";
  if (verdict_.ending()) return "the job is over";
  return queue_.handed_over(*index) ? "" : "host " + agents_[*index]->host + " has an agent already";
}

void Job::joined(std::unique_ptr<net::SecureSocket> socket) {
  const auto index = joining(socket->peer());
  if (!index || !queue_.handed_over(*index)) return;
  const TimePoint now = Clock::now();
  queue_.come(*index, now);
  AgentHandle handle{.process = {}, .pipe = FramePipe(std::move(socket)), .errors = {}, .remote = true};
  bring_up(*agents_[*index], std::move(handle), now);
}

void Job::host_failed(const Agent& agent, const HostFailed& fault) {
  if (!tree_ || fault.index < 0 || static_cast<std::size_t>(fault.index) >= agents_.size()) return;
  const auto index = static_cast<std::size_t>(fault.index);
  if (tree_->starters[index] == static_cast<int>(agent.index)) start_from_here(index, fault.text);
}

// `why`: what its starter has said, or what is wrong with that.
void Job::start_from_here(std::size_t index, const std::string& why) {
  if (!queue_.take_back(index)) return;
  Agent& agent = *agents_[index];
  const std::string starter = agents_[static_cast<std::size_t>(tree_->starters[index])]->host;
  agent.tried = " (before that, host " + starter + " was to start it: " + why + ")";
  if (!config_.verbose || std::exchange(tree_->told, true)) return;
  output_->say("host " + starter + " could not start the agent of host " + agent.host + ": " + why +
               ". This machine starts it, and others of which the same is true");
}

void Job::start_late(TimePoint now) {
  for (const std::size_t i : queue_.late(now)) start_from_here(i, "nothing has come of it in time");
}

void Job::take_back_from(const Agent& agent, const std::string& why) {
  if (!tree_) return;
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (tree_->starters[i] == static_cast<int>(agent.index)) start_from_here(i, why);
  }
}

}  // namespace distrun::launcher
