#include "launcher/job/ranks/survey.h"

#include <algorithm>
#include <utility>

#include "launcher/job/agents/job_state.h"
#include "launcher/plan/network/network.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {

void Survey::open(std::optional<net::JobKey> key, double host_timeout) {
  key_ = std::move(key);
  host_timeout_ = host_timeout;
}

// Created on first use, when ranks run: before that, hosts may still be dropped.
MissedRanks& Survey::missed() {
  if (missed_) return *missed_;
  Evidence known{.host_timeout = host_timeout_};
  for (int rank = 0; rank < members_.size(); ++rank) known.host_of.push_back(static_cast<int>(members_.host_of(rank)));
  for (const auto& agent : agents_.all()) known.host_names.push_back(agent->host);
  return missed_.emplace(std::move(known));
}

void Survey::joined(int rank, int pid) {
  pids_[rank] = pid;
  missed().awaits_exit(rank, false);
}

void Survey::add(const net::StoreNotice& notice, TimePoint now) {
  using Kind = net::StoreNotice::Kind;
  const auto kind = notice.kind == Kind::kFollows   ? MissReport::Kind::kLoss
                    : notice.kind == Kind::kStalled ? MissReport::Kind::kStall
                                                    : MissReport::Kind::kWait;
  missed().reported({.kind = kind, .rank = notice.rank, .missed = notice.missed, .failure = notice.failure}, now);
}

Result<bool> Survey::on(const AgentLink& agent, const Frame& frame) {
  switch (static_cast<FromAgent>(frame.type)) {
    case FromAgent::kRankStates:
      return with(decode<RankStates>(frame.payload), [&](const RankStates& answer) { answered(agent, answer); });
    case FromAgent::kProbed:
      return with(decode<Probed>(frame.payload), [&](const Probed& answer) { probed(agent, answer); });
    default:
      return false;
  }
}

Survey::Found Survey::look(TimePoint now) {
  if (!missed_ || !missed_->pending()) return {};
  leave_out_absent();
  MissedRanks::Step step = missed().step(now);
  if (step.ask) ask(true);
  if (step.try_paths) try_paths();
  for (const int host : step.silent) {
    AgentLink& agent = agents_[static_cast<std::size_t>(host)];
    // This machine cannot be a lost host.
    if (agent.handle.remote && !agent.done()) silent_.push_back(&agent);
  }
  if (step.no_cause && !ports_.empty()) ask(false);  // they need not listen any more
  return found(std::move(step));
}

Survey::Found Survey::found(MissedRanks::Step step) const {
  if (step.blame) add_addresses(*step.blame);
  return {.no_cause = step.no_cause, .blame = std::move(step.blame)};
}

// Treats agents whose ranks have all ended as having answered.
void Survey::leave_out_absent() {
  for (const auto& agent : agents_.all()) {
    if (!absent(*agent)) continue;
    missed().answered(static_cast<int>(agent->index), {});
    stop_probing(static_cast<int>(agent->index));
  }
}

void Survey::stop_probing(int host) {
  if (probing_.erase(host) != 0 && probing_.empty()) missed().tried(std::exchange(broken_, {}));
}

// True if no more messages come from this agent.
bool Survey::absent(const AgentLink& agent) const { return agent.done() || agent.handle.pipe.closed(); }

void Survey::ask(bool listen) {
  ports_.clear();
  probing_.clear();
  broken_.clear();
  send_question(++round_, listen && key_.has_value());
}

void Survey::send_question(std::uint32_t round, bool listen) {
  AskStates question{.round = round, .listen = listen};
  for (const auto& [rank, pid] : pids_) {
    question.sessions.push_back({.rank = static_cast<int>(members_.worker_of(rank)), .pid = pid});
  }
  for (const auto& agent : agents_.all()) {
    if (!absent(*agent)) agent->send(ToAgent::kAskStates, encode(question));
  }
}

void Survey::answered(const AgentLink& agent, const RankStates& answer) {
  std::vector<std::pair<int, char>> states;
  for (const RankStates::One& one : answer.ranks) {
    if (const auto rank = members_.rank_of(WorkerId{one.rank})) {
      states.emplace_back(*rank, static_cast<char>(one.state));
      states_[*rank] = static_cast<char>(one.state);
    }
  }
  if (answer.round == AskStates::kStatesOnly || answer.round != round_) return;
  const int host = static_cast<int>(agent.index);
  if (answer.probe_port != 0) ports_[host] = answer.probe_port;
  missed().answered(host, states);
}

std::string Survey::address_of(std::size_t host) const {
  const auto& facts = agents_.all().at(host)->facts;
  return facts ? facts->address : "";
}

// Only one agent of each host takes part.
void Survey::try_paths() {
  std::vector<int> hosts;
  std::set<std::string> names;
  for (const auto& [host, port] : ports_) {
    const AgentLink& agent = agents_[static_cast<std::size_t>(host)];
    if (!absent(agent) && !address_of(agent.index).empty() && names.insert(agent.host).second) hosts.push_back(host);
  }
  const auto* key = reinterpret_cast<const std::byte*>(key_ ? key_->data() : nullptr);
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(missed().path_limit());
  std::map<int, Probe> orders;
  for (const auto& [from, to] : pairs_to_probe(static_cast<int>(hosts.size()))) {
    const int own = hosts[static_cast<std::size_t>(from)];
    const int other = hosts[static_cast<std::size_t>(to)];
    Probe& order = orders[own];
    order.host = own;
    order.limit_ms = static_cast<std::uint32_t>(limit.count());
    order.key.assign(key, key + net::JobKey::kBytes);
    const net::Address address{.host = address_of(static_cast<std::size_t>(other)), .port = ports_.at(other)};
    order.targets.push_back({.host = other, .candidate = 0, .address = net::to_string(address)});
  }
  for (const int host : hosts) {
    // A host without targets must still answer the probes of others.
    if (!orders.contains(host)) {
      orders[host] = {.key = {key, key + net::JobKey::kBytes}, .host = host, .limit_ms = 1};
    }
    probing_.insert(host);
    agents_[static_cast<std::size_t>(host)].send(ToAgent::kProbe, encode(orders[host]));
  }
  if (probing_.empty()) missed().tried({});
}

void Survey::probed(const AgentLink& agent, const Probed& answer) {
  const int host = static_cast<int>(agent.index);
  if (!probing_.contains(host)) return;
  for (const ProbeResult& result : answer.results) {
    if (result.failure.empty() || !by_network(result.link)) continue;
    broken_.push_back({.from = host, .to = result.host, .link = result.link, .why = result.failure});
  }
  stop_probing(host);
}

void Survey::add_addresses(Blame& blame) const {
  auto& link = blame.failure.cause.link;
  if (!link) return;
  for (BrokenLink::End* const end : {&link->from, &link->to}) {
    if (!end->host.empty()) end->address = address_of(static_cast<std::size_t>(end->number));
  }
}

}  // namespace distrun::launcher
