// The job's first part: agents start, answer what their hosts have or why they cannot take part, and get their plans.
#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/job/job.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/descendants.h"
#include "launcher/version.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {

void Job::open_start(TimePoint now) {
  // Before the first child: what exists now is none of ours and must never be touched.
  not_ours_ = current_children();
  become_subreaper();
  const Assignment& assignment = config_.plan.assignment;
  for (std::size_t i = 0; i < assignment.hosts.size(); ++i) {
    agents_.push_back(
        std::make_unique<Agent>(Agent{.host = assignment.hosts[i], .user = assignment.users[i], .index = i}));
  }
  plan_tree();
  start_agents(now);
}

void Job::start_agents(TimePoint now) {
  start_late(now);
  for (const std::size_t i : queue_.due(now)) start_agent(*agents_[i], now);
  for (const std::size_t i : queue_.overdue(now)) {
    Agent& agent = *agents_[i];
    const std::chrono::duration<double> limit = config_.start.answer;
    take_errors(agent);
    faults_.push_back({.code = exit_code::kUnusable,
                       .text = "host " + agent.host + ": " +
                               no_answer(limit.count(), agent.printed + agent.handle.pipe.noise()) + agent.tried});
    take_back_from(agent, "it has not come up itself");
    agent.done = true;
    agent.handle.process.signal(SIGKILL);
    agent.handle.pipe.abandon();
  }
  go_on();
}

void Job::start_agent(Agent& agent, TimePoint now) {
  // One that was asked before is there already.
  if (agent.up) return prepare(agent);
  auto handle = spawner_.start(agent.host, agent.user);
  if (!handle.ok()) {
    queue_.failed(agent.index, false, now);
    faults_.push_back(
        {.code = exit_code::kUnusable, .text = "host " + agent.host + ": " + handle.status().message() + agent.tried});
    return take_back_from(agent, "it cannot be started itself");
  }
  bring_up(agent, *std::move(handle), now);
}

void Job::bring_up(Agent& agent, AgentHandle handle, TimePoint now) {
  agent = Agent{.host = agent.host,
                .user = agent.user,
                .index = agent.index,
                .up = true,
                .handle = std::move(handle),
                .tried = agent.tried};
  agent.gone = agent.handle.process.pid() < 0;  // it is nobody's child here
  agent.handle.pipe.await(kAgentGreeting);
  prepare(agent);
  order_starts(agent, now);
}

void Job::prepare(Agent& agent) {
  agent.answered = false;
  Prepare order;
  order.ask = static_cast<bool>(config_.assign);
  order.version = kVersion;
  order.host = agent.host;
  order.job_id = config_.plan.job_id;
  order.sysroot = config_.sysroot;
  if (!order.ask) order.ports = ports_needed(config_.plan, static_cast<int>(agent.index));
  order.grace = config_.grace;
  order.preempt_signal = config_.preempt_signal;
  order.probe = config_.several_machines;
  order.lease = agent.handle.remote && !order.ask ? kAgentWaits * config_.host_timeout : 0;
  order.common = config_.common;
  if (agent.handle.remote) {
    // On this very host all is as here, but for the devices that MPI's launcher may have given each of its tasks.
    for (const std::string& name : config_.plan.base.host_own) {
      if (agent.handle.own_host && !names_devices(name)) continue;
      order.common.host_own.push_back(name);
      if (!agent.handle.own_host && !names_folder(name)) order.common.environment.erase(name);
    }
  }
  agent.handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kPrepare), encode(order));
  if (!probes_head_only()) return;
  if (const Status status = await_probes(); !status.ok()) return fail_start(exit_code::kUnusable, status.message());
  order_probe(agent);
}

void Job::answered(Agent& agent, const Prepared& answer) {
  agent.answered = true;
  agent.facts = answer.facts;
  if (agent.handle.remote && !config_.assign)
    agent.heart = Heartbeat(duration_of(kHeadWaits * config_.host_timeout), Clock::now());
  queue_.answered(agent.index);
  go_on();
}

void Job::refused(Agent& agent, const Refused& why) {
  // An agent that could start some ranks but not others: the others must go too.
  if (started_) return fail_start(why.exit_code, why.text);
  agent.answered = true;
  queue_.answered(agent.index);
  take_back_from(agent, "it cannot take part itself");
  faults_.push_back({.code = why.exit_code, .text = why.text});
  go_on();
}

// The agent's process has ended before it answered.
void Job::start_failed(Agent& agent) {
  take_back_from(agent, "its own agent ended");
  const int code = WIFEXITED(agent.wait_status) ? WEXITSTATUS(agent.wait_status) : 0;
  const bool may_pass = agent.handle.remote && ssh_may_pass(code, agent.printed);
  if (queue_.failed(agent.index, may_pass, Clock::now())) {
    agent.up = false;
    return;
  }
  const std::string early = agent.handle.remote ? "" : "the agent ended before it answered: it ";
  faults_.push_back(
      {.code = exit_code::kUnusable, .text = "host " + agent.host + ": " + early + why_gone(agent) + agent.tried});
  go_on();
}

// The job ends before it has begun: a host that has not answered is not waited for.
void Job::drop_unanswered() {
  for (auto& agent : agents_) {
    if (!agent->up || agent->over() || agent->answered) continue;
    agent->done = true;
    agent->handle.process.signal(SIGKILL);
    agent->handle.pipe.abandon();
  }
}

// Once every host has answered or failed.
void Job::go_on() {
  if (queue_.pending() || started_ || verdict_.ending()) return;
  find_twins();
  if (!faults_.empty()) return refuse_start();
  if (config_.assign) return;  // when this round is over: nothing of the old state may be in use then
  if (!config_.several_machines) return start_ranks();
  if (!probing_) open_probes();
}

// All candidates have told what they have. Those that get no rank are let go: an agent ends when its pipe does.
void Job::assign() {
  if (queue_.pending() || !faults_.empty() || verdict_.ending()) return;
  std::vector<Topology> found;
  for (const auto& agent : agents_) found.push_back(agent->facts->topology);
  const auto decide = std::exchange(config_.assign, nullptr);
  Status status = decide(found, config_);
  if (status.ok()) status = open();
  if (!status.ok()) {
    const bool usage = status.code() == Errc::kInvalidArgument;
    return fail_start(usage ? exit_code::kUsage : exit_code::kUnusable, status.message());
  }
  std::vector<std::unique_ptr<Agent>> all = std::move(agents_);
  agents_.clear();
  // In the order of the candidates.
  const Assignment& chosen = config_.plan.assignment;
  for (auto& agent : all) {
    const std::size_t next = agents_.size();
    if (next < chosen.hosts.size() && chosen.hosts[next] == agent->host && chosen.users[next] == agent->user) {
      agent->index = next;
      agents_.push_back(std::move(agent));
    }
  }
  queue_ = StartQueue(agents_.size(), config_.start);
  start_agents(Clock::now());
}

Status Job::await_probes() {
  if (listener_) return {};
  auto listener = ProbeListener::open();
  if (!listener.ok()) return listener.status();
  listener_.emplace(*std::move(listener));
  listener_->answer(key_, {.job_id = config_.plan.job_id});
  probed_head_ = ProbedHost{
      .name = "this machine", .addresses = eligible(net::scan_addresses(), config_.network), .port = listener_->port()};
  return {};
}

// Of a single host it is known beforehand whom it is to probe: the head. That saves it a round trip.
bool Job::probes_head_only() const { return config_.several_machines && !config_.assign && agents_.size() == 1; }

void Job::order_probe(Agent& agent) {
  const auto* key = reinterpret_cast<const std::byte*>(key_.data());
  const int host = static_cast<int>(agent.index);
  const Probe order{.key = {key, key + net::JobKey::kBytes},
                    .host = host,
                    .targets = probe_targets(host, probed_hosts_, probed_head_)};
  agent.handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kProbe), encode(order));
}

void Job::open_probes() {
  probing_ = true;
  if (const Status status = await_probes(); !status.ok()) return fail_start(exit_code::kUnusable, status.message());
  for (const auto& agent : agents_) {
    probed_hosts_.push_back({.name = agent->host,
                             .addresses = eligible(agent->facts->candidates, config_.network),
                             .port = agent->facts->probe_port});
  }
  if (probes_head_only()) return;
  for (const auto& agent : agents_) order_probe(*agent);
}

void Job::probed(Agent& agent, const Probed& answer) {
  agent.probes = answer.results;
  const bool all = std::all_of(agents_.begin(), agents_.end(), [](const auto& one) { return one->probes.has_value(); });
  if (all && !started_ && !verdict_.ending()) choose();
}

void Job::choose() {
  std::vector<std::vector<ProbeResult>> reports;
  for (const auto& agent : agents_) reports.push_back(*agent->probes);
  const auto choice = choose_addresses(probed_hosts_, probed_head_, reports);
  if (!choice.ok()) return fail_start(exit_code::kUnusable, choice.status().message());
  for (const auto& agent : agents_) {
    const ChosenAddress& chosen = choice->hosts[agent->index];
    agent->facts->address = chosen.candidate.address;
    agent->facts->interface = chosen.candidate.interface;
    config_.plan.assignment.reasons.push_back("address of " + chosen.reason);
  }
  auto store = net::parse_address(store_->address());
  if (!store.ok()) return fail_start(exit_code::kInternal, store.status().message());
  store->host = choice->head->candidate.address;
  config_.plan.assignment.reasons.push_back("address of " + choice->head->reason);
  config_.plan.store = net::to_string(*store);
  listener_.reset();
  start_ranks();
}

// Names are ssh's business (its configuration knows more of them than anybody else). Where something else brings agents
// to hosts, or they come by themselves, its names say what a host is.
void Job::find_twins() {
  std::vector<NamedMachine> machines;
  for (const auto& agent : agents_) {
    const bool by_name = !agent->handle.remote || spawner_.ssh(agent->host, agent->user) != nullptr;
    if (!by_name || !agent->facts) continue;
    machines.push_back({.name = spelt({.name = agent->host, .user = agent->user}), .identity = agent->facts->machine});
  }
  for (std::string& text : machines_named_twice(machines)) {
    faults_.push_back({.code = exit_code::kUnusable, .text = std::move(text)});
  }
}

void Job::refuse_start() {
  // With --mpi a host has several agents, which say the same.
  std::set<std::string> hosts;
  std::vector<std::string> texts;
  for (const auto& agent : agents_) hosts.insert(agent->host);
  for (const StartFault& fault : faults_) {
    if (std::find(texts.begin(), texts.end(), fault.text) == texts.end()) texts.push_back(fault.text);
  }
  if (hosts.size() == 1) return fail_start(faults_.front().code, texts.front());
  fail_start(exit_code::kUnusable, "the job cannot start, because of " + counted(texts.size(), "host") + " of " +
                                       std::to_string(hosts.size()) + ":\n  " + join(texts, "\n  "));
}

void Job::report_plan(const LaunchPlan& plan) {
  for (const std::string& hint : plan.hints) output_->say(hint);
  if (config_.verbose) {
    for (const std::string& reason : plan_reasons(plan)) output_->say(reason);
  }
  if (!config_.report_bindings) return;
  for (const Place& place : plan.places) {
    output_->say("rank " + std::to_string(place.rank) + " on " + plan.host_names[static_cast<std::size_t>(place.host)] +
                 ": " + binding_text(plan.bindings[static_cast<std::size_t>(place.rank)]));
  }
}

void Job::start_ranks() {
  started_ = true;
  std::vector<HostFacts> facts;
  std::map<std::string, std::vector<HostSlots>> alike;  // hosts, by reason
  for (const auto& agent : agents_) {
    facts.push_back(*agent->facts);
    for (const std::string& reason : agent->facts->reasons) {
      alike[reason].push_back({.name = agent->host, .user = agent->user});
    }
  }
  for (const auto& [reason, hosts] : alike) {
    config_.plan.assignment.reasons.push_back("on " + shortened(as_option(hosts)) + ": " + reason);
  }
  const auto plan = make_plan(config_.plan, facts);
  if (!plan.ok()) return fail_start(exit_code::kUsage, plan.status().message());
  output_->begin();
  report_plan(*plan);
  const auto* key = reinterpret_cast<const std::byte*>(key_.data());
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const Start order{.plan = plan->hosts[i],
                      .tf_cluster = plan->tf_cluster,
                      .no_grpc_proxy = plan->no_grpc_proxy,
                      .key = {key, key + net::JobKey::kBytes}};
    agents_[i]->handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kStart), encode(order));
  }
  open_input();
}

void Job::open_input() {
  std::set<std::size_t> readers;
  for (const Place& place : config_.plan.assignment.places) {
    if (config_.plan.input.of(place.rank) != RankInput::kNone) readers.insert(static_cast<std::size_t>(place.host));
  }
  input_.open(std::move(readers));
  if (config_.plan.input.terminal < 0) return;
  terminal_.enter();
  tell_window();
}

void Job::tell_window() {
  const auto window = RawTerminal::window();
  if (!started_ || config_.plan.input.terminal < 0 || !window) return;
  const Place& place = config_.plan.assignment.places[static_cast<std::size_t>(config_.plan.input.terminal)];
  Agent& agent = *agents_[static_cast<std::size_t>(place.host)];
  agent.handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kWindow), encode(*window));
}

}  // namespace distrun::launcher
