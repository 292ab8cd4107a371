#include "launcher/job/start/job_start.h"

#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/exit_codes.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/carrier_path.h"
#include "launcher/spawn/remote_command.h"
#include "launcher/version.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {
namespace {

// Finds hosts that are listed under two names. Only ssh knows which machine a name means (its configuration may define
// names). If another system starts the agents, or they dial in, the names of that system define the hosts.
std::vector<std::string> hosts_named_twice(const AgentLinks& agents) {
  std::vector<NamedMachine> machines;
  for (const auto& agent : agents.all()) {
    const bool by_name = !agent->handle.remote || agent->by_ssh;
    if (!by_name || !agent->facts) continue;
    machines.push_back({.name = spelt({.name = agent->host, .user = agent->user}), .identity = agent->facts->machine});
  }
  return machines_named_twice(machines);
}

void report(const LaunchPlan& plan, const JobConfig& config, const JobStart::Print& print) {
  for (const std::string& hint : plan.hints) print(hint);
  if (config.options().verbose) {
    for (const std::string& reason : plan_reasons(plan)) print(reason);
  }
  if (!config.options().placement.report_bindings) return;
  for (const Place& place : plan.places) {
    print("rank " + std::to_string(place.rank) + " on " + plan.host_names[static_cast<std::size_t>(place.host)] + ": " +
          binding_text(plan.bindings[static_cast<std::size_t>(place.rank)]));
  }
}

// A single host probes only the head, so the order is known in advance. That saves a round trip.
bool probes_head_only(const JobLayout& layout, const AgentLinks& agents) {
  return layout.several_machines && agents.size() == 1;
}

void ask_for_probes(const AgentLinks& agents, const ProbeRound& probes) {
  for (const auto& agent : agents.all()) {
    agent->send(ToAgent::kProbe, encode(probes.order(static_cast<int>(agent->index))));
  }
}

bool all_probed(const AgentLinks& agents) {
  const auto& all = agents.all();
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one->probes.has_value(); });
}

// True if what is wrong with the folder or the program on this host may pass. This machine has what it has when the
// user types the command.
bool waits_for_files(const JobConfig& config, const AgentLink& agent) {
  return config.start.keep_trying && agent.handle.remote && !agent.handle.own_host;
}

}  // namespace

JobStart::JobStart(const JobConfig& config, const net::JobKey& key, AgentLinks& agents, AgentSpawner& spawner,
                   const Log& log, Print print)
    : config_(config),
      key_(key),
      agents_(agents),
      spawner_(spawner),
      print_(std::move(print)),
      layout_(config),
      queue_(agents.size(), config.start),
      tree_({.fan_out = config.options().hosts.fan_out,
             .job_id = config.plan.job_id,
             .network = config.options().hosts.network,
             .verbose = config.options().verbose,
             .print = print_,
             .log = &log},
            agents, queue_, spawner),
      probes_(key, config.plan.job_id, config.options().hosts.network),
      logins_(agents, spawner),
      naming_(agents) {
  tree_.open();
}

void JobStart::ask(TimePoint now) {
  phase_ = Phase::kAsking;
  start_agents(now);
}

void JobStart::prepare(const JobLayout& layout, const std::string& store, TimePoint now) {
  const bool asked = phase_ == Phase::kAsking;
  phase_ = Phase::kPreparing;
  outcome_ = Outcome::kNone;
  layout_ = layout;
  layout_.plan.store = store;
  if (asked) {
    agents_.keep_only(layout_.plan.assignment);
    queue_ = StartQueue(agents_.size(), config_.start);
  }
  start_agents(now);
}

void JobStart::start_agents(TimePoint now) {
  tree_.take_back_late(now);
  for (const std::size_t i : queue_.due(now)) start_agent(agents_[i], now);
  std::size_t paths = 0;
  for (const std::size_t i : queue_.overdue(now)) {
    AgentLink& agent = agents_[i];
    const bool known = agent.by_ssh && !agent.gone() && paths++ < kMostPaths;
    const LinkEnd path = known ? path_of_carrier(agent.handle.process.pid()) : LinkEnd::kUnknown;
    const std::chrono::duration<double> limit = config_.start.answer;
    agents_.take_errors(agent);
    give_up(agent, no_answer(limit.count(), agent.carrier_end(), path));
  }
  for (const LoginCheck::Fault& fault : logins_.look(now)) {
    if (config_.start.keep_trying) {
      print_("host " + agents_[fault.host].host + ": " + fault.text + " distrun waits until --start-timeout is over");
      continue;
    }
    queue_.failed(fault.host, false, now);
    give_up(agents_[fault.host], fault.text);
  }
  advance();
}

// The head does not wait for this agent any more.
void JobStart::give_up(AgentLink& agent, const std::string& why) {
  faults_.add(exit_code::kUnusable, "host " + agent.host + ": " + why + agent.tried);
  tree_.take_back_from(agent, "it has not come up itself");
  agent.drop();
}

void JobStart::start_agent(AgentLink& agent, TimePoint now) {
  // An agent that was asked before already runs.
  if (agent.up()) return order_preparation(agent);
  auto handle = spawner_.start(agent.host, agent.user);
  if (!handle.ok()) {
    queue_.failed(agent.index, false, now);
    faults_.add(exit_code::kUnusable, "host " + agent.host + ": " + handle.status().message() + agent.tried);
    return tree_.take_back_from(agent, "it cannot be started itself");
  }
  bring_up(agent, *std::move(handle), now);
}

void JobStart::bring_up(AgentLink& agent, AgentHandle handle, TimePoint now) {
  const auto starter = tree_.starter_of(agent.first_index, handle);
  agent = AgentLink{.host = agent.host,
                    .user = agent.user,
                    .index = agent.index,
                    .first_index = agent.first_index,
                    .starter = starter,
                    .by_ssh = agent.by_ssh,
                    .handle = std::move(handle),
                    .tried = agent.tried};
  agent.handle.pipe.await(kAgentGreeting);
  order_preparation(agent);
  tree_.order_starts(agent, now);
}

void JobStart::order_preparation(AgentLink& agent) {
  agent.state = AgentLink::State::kAsked;
  Prepare order;
  order.ask = phase_ == Phase::kAsking;
  order.version = kVersion;
  order.host = agent.host;
  order.job_id = layout_.plan.job_id;
  order.sysroot = config_.options().placement.sysroot;
  if (!order.ask) order.ports = ports_needed(layout_.plan, static_cast<int>(agent.index));
  order.grace = config_.options().end.grace;
  order.preempt_signal = config_.preempt_signal;
  order.probe = layout_.several_machines;
  order.keep_trying = waits_for_files(config_, agent);
  order.lease = agent.handle.remote && !order.ask ? config_.host_timeout : 0;
  order.common = layout_.common;
  if (agent.handle.remote) {
    // On this machine the values are the same, except for the devices that MPI's launcher may have given to each of its
    // tasks.
    for (const std::string& name : layout_.plan.base.host_own) {
      if (agent.handle.own_host && !names_devices(name)) continue;
      order.common.host_own.push_back(name);
      if (!agent.handle.own_host && !names_folder(name)) order.common.environment.erase(name);
    }
  }
  agent.send(ToAgent::kPrepare, encode(order));
  if (order.ask || !probes_head_only(layout_, agents_)) return;
  if (const Status status = probes_.listen(); !status.ok())
    return refuse({.code = exit_code::kUnusable, .text = status.message()});
  agent.send(ToAgent::kProbe, encode(probes_.order(static_cast<int>(agent.index))));
}

Result<bool> JobStart::on(AgentLink& agent, const Frame& frame) {
  switch (static_cast<FromAgent>(frame.type)) {
    case FromAgent::kPrepared:
      return with(decode<Prepared>(frame.payload), [&](const Prepared& answer) { answered(agent, answer); });
    case FromAgent::kRefused:
      return with(decode<Refused>(frame.payload), [&](const Refused& why) { refused(agent, why); });
    case FromAgent::kProbed:
      return with(decode<Probed>(frame.payload), [&](const Probed& answer) {
        agent.probes = answer.results;
        if (all_probed(agents_) && outcome_ == Outcome::kNone) choose_addresses();
      });
    case FromAgent::kResolved:
      return with(decode<Resolved>(frame.payload), [&](const Resolved& answer) { resolved(agent, answer); });
    case FromAgent::kHostFailed:
      return with(decode<HostFailed>(frame.payload), [&](const HostFailed& fault) { tree_.host_failed(agent, fault); });
    default:
      return false;
  }
}

void JobStart::answered(AgentLink& agent, const Prepared& answer) {
  agent.state = AgentLink::State::kAnswered;
  agent.facts = answer.facts;
  if (agent.handle.remote && phase_ != Phase::kAsking) {
    agent.sign.expect(Clock::now());
    agent.handle.pipe.outlast(config_.host_timeout);
  }
  queue_.answered(agent.index);
  advance();
}

void JobStart::refused(AgentLink& agent, const Refused& why) {
  if (why.may_come && waits_for_files(config_, agent)) {
    if (queue_.failed(agent.index, true, Clock::now())) {
      if (!std::exchange(agent.refused, true)) print_(why.text + kTriesAgain);
      return;
    }
  }
  agent.state = AgentLink::State::kAnswered;
  queue_.answered(agent.index);
  tree_.take_back_from(agent, "it cannot take part itself");
  faults_.add(why.exit_code, why.text);
  advance();
}

void JobStart::on_silent(const HostLoss& loss) {
  if (loss.cause.kind == CauseKind::kOwnNetwork) return refuse({.code = exit_code::kUnusable, .text = loss.cause.text});
  for (AgentLink* const agent : loss.links) on_explained(*agent);
}

// The agent's process has ended before ranks have started.
void JobStart::on_explained(AgentLink& agent) {
  if (agent.state == AgentLink::State::kLostInEnding) return;
  tree_.take_back_from(agent, "its own agent ended");
  const int attempts = queue_.attempts(agent.index);
  const std::string host = "host " + agent.host + ": ";
  if (queue_.failed(agent.index, agent.may_come(config_.start.keep_trying), Clock::now())) {
    agent.state = AgentLink::State::kDown;
    if (config_.start.keep_trying && attempts == 1) {
      print_(host + agent.why_gone() + kTriesAgain);
    }
    return;
  }
  const std::string early = agent.handle.remote ? "" : "the agent ended before it answered: it ";
  const std::string often = attempts > 1 ? " (" + std::to_string(attempts) + " attempts)" : "";
  faults_.add(exit_code::kUnusable, host + early + agent.why_gone() + often + agent.tried);
  advance();
}

void JobStart::watch(Poller& poller) {
  probes_.watch(poller);
  logins_.watch(poller);
  tree_.watch(poller,
              [this](AgentLink& agent, AgentHandle handle, TimePoint now) { bring_up(agent, std::move(handle), now); });
}

void JobStart::tick(TimePoint now) {
  if (outcome_ != Outcome::kNone) return;
  if (queue_.pending()) start_agents(now);
  if (!queue_.pending()) tree_.close();
  // Only at the end of a round: no object of the old layout may be in use then.
  if (phase_ == Phase::kAsking && !queue_.pending() && outcome_ == Outcome::kNone) choose_hosts();
}

std::optional<TimePoint> JobStart::deadline() const {
  return queue_.pending() ? earlier(queue_.deadline(), logins_.deadline()) : std::nullopt;
}

// Continues when every host has answered or failed.
void JobStart::advance() {
  if (queue_.pending() || outcome_ != Outcome::kNone) return;
  for (std::string& text : hosts_named_twice(agents_)) faults_.add(exit_code::kUnusable, std::move(text));
  if (faults_.any()) {
    std::vector<std::string> hosts;
    for (const auto& agent : agents_.all()) hosts.push_back(agent->host);
    return refuse(faults_.refusal(hosts));
  }
  if (phase_ == Phase::kAsking) return;
  if (!layout_.several_machines) return make_ready();
  if (phase_ == Phase::kPreparing) open_probes();
}

// All candidates have reported their topology.
void JobStart::choose_hosts() {
  std::vector<Topology> found;
  for (const auto& agent : agents_.all()) found.push_back(agent->facts->topology);
  auto layout = config_.assign(found, layout_);
  if (!layout.ok()) {
    const bool usage = layout.status().code() == Errc::kInvalidArgument;
    return refuse({.code = usage ? exit_code::kUsage : exit_code::kUnusable, .text = layout.status().message()});
  }
  layout_ = *std::move(layout);
  outcome_ = Outcome::kChosen;
}

void JobStart::open_probes() {
  phase_ = Phase::kProbing;
  if (const Status status = probes_.listen(); !status.ok())
    return refuse({.code = exit_code::kUnusable, .text = status.message()});
  for (const auto& agent : agents_.all()) probes_.add(agent->host, *agent->facts);
  if (!probes_head_only(layout_, agents_)) ask_for_probes(agents_, probes_);
}

bool JobStart::has_answered(const AgentLink& agent) const {
  if (agent.state < AgentLink::State::kAnswered) return false;
  return phase_ == Phase::kProbing ? agent.probes.has_value() : phase_ != Phase::kNaming || agent.names.has_value();
}

void JobStart::choose_addresses() {
  std::vector<std::vector<ProbeResult>> reports;
  for (const auto& agent : agents_.all()) reports.push_back(*agent->probes);
  const auto choice = probes_.choose(reports);
  if (!choice.ok()) return refuse({.code = exit_code::kUnusable, .text = choice.status().message()});
  std::vector<std::string>& reasons = layout_.plan.assignment.reasons;
  for (const auto& agent : agents_.all()) {
    const ChosenAddress& chosen = choice->hosts[agent->index];
    agent->facts->address = chosen.candidate.address;
    agent->facts->interface = chosen.candidate.interface;
    reasons.push_back("address of " + chosen.reason);
  }
  auto store = net::parse_address(layout_.plan.store);
  if (!store.ok()) return refuse({.code = exit_code::kInternal, .text = store.status().message()});
  store->host = choice->head->candidate.address;
  reasons.push_back("address of " + choice->head->reason);
  layout_.plan.store = net::to_string(*store);
  if (!naming_.ask(static_cast<std::size_t>(layout_.plan.assignment.places.front().host))) return make_ready();
  phase_ = Phase::kNaming;
}

void JobStart::resolved(AgentLink& agent, const Resolved& answer) {
  auto chosen = naming_.answered(agent, answer);
  if (!chosen || outcome_ != Outcome::kNone) return;
  layout_.plan.master_name = std::move(chosen->name);
  layout_.plan.assignment.reasons.push_back(std::move(chosen->reason));
  make_ready();
}

void JobStart::refuse(Refusal why) {
  refusal_ = std::move(why);
  outcome_ = Outcome::kRefused;
}

void JobStart::make_ready() {
  std::vector<HostFacts> facts;
  std::map<std::string, std::vector<HostSlots>> alike;  // hosts, by reason
  for (const auto& agent : agents_.all()) {
    facts.push_back(*agent->facts);
    for (const std::string& reason : agent->facts->reasons) {
      alike[reason].push_back({.name = agent->host, .user = agent->user});
    }
  }
  for (const auto& [reason, hosts] : alike) {
    layout_.plan.assignment.reasons.push_back("on " + shortened(as_option(hosts)) + ": " + reason);
  }
  auto plan = make_plan(layout_.plan, facts);
  if (!plan.ok()) return refuse({.code = exit_code::kUsage, .text = plan.status().message()});
  plan_ = *std::move(plan);
  outcome_ = Outcome::kReady;
}

void JobStart::start_ranks() {
  report(plan_, config_, print_);
  const auto* key = reinterpret_cast<const std::byte*>(key_.data());
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const Start order{.plan = plan_.hosts[i],
                      .tf_cluster = plan_.tf_cluster,
                      .no_grpc_proxy = plan_.no_grpc_proxy,
                      .key = {key, key + net::JobKey::kBytes}};
    agents_[i].send(ToAgent::kStart, encode(order));
  }
}

}  // namespace distrun::launcher
