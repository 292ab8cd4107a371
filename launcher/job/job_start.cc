// The job's first part: agents start, answer what their hosts have or why they cannot take part, and get their plans.
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "launcher/agent/addresses.h"
#include "launcher/job/job.h"
#include "launcher/plan/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/spawn/descendants.h"
#include "launcher/version.h"
#include "runtime/net/socket.h"

namespace distrun::launcher {

void Job::open_start(TimePoint now) {
  // Before the first child: what exists now is none of ours and must never be touched.
  not_ours_ = current_children();
  become_subreaper();
  for (const std::string& host : config_.plan.assignment.hosts) {
    agents_.push_back(std::make_unique<Agent>(Agent{.host = host, .index = agents_.size()}));
  }
  start_agents(now);
}

void Job::start_agents(TimePoint now) {
  for (const std::size_t i : queue_.due(now)) start_agent(*agents_[i], now);
  for (const std::size_t i : queue_.overdue(now)) {
    Agent& agent = *agents_[i];
    const std::chrono::duration<double> limit = config_.start.answer;
    faults_.push_back({.code = exit_code::kUnusable,
                       .text = "host " + agent.host + ": the agent has not answered within " +
                               seconds_text(limit.count()) +
                               " s; does a program start quickly there, and is the home "
                               "directory's file system up?"});
    agent.done = true;
    agent.handle.process.signal(SIGKILL);
    agent.handle.pipe.abandon();
  }
  go_on();
}

void Job::start_agent(Agent& agent, TimePoint now) {
  auto handle = spawner_.start(agent.host, config_.plan.assignment.users[agent.index]);
  if (!handle.ok()) {
    queue_.failed(agent.index, false, now);
    faults_.push_back({.code = exit_code::kUnusable, .text = "host " + agent.host + ": " + handle.status().message()});
    return;
  }
  agent = Agent{.host = agent.host, .index = agent.index, .up = true, .handle = *std::move(handle)};
  agent.gone = agent.handle.process.pid() < 0;  // it is nobody's child here
  Prepare order;
  order.version = kVersion;
  order.host = agent.host;
  order.job_id = config_.plan.job_id;
  order.sysroot = config_.sysroot;
  order.ports = ports_needed(config_.plan, static_cast<int>(agent.index));
  order.grace = config_.grace;
  order.probe = config_.several_machines;
  order.lease = agent.handle.remote ? kLease.count() : 0;
  order.common = config_.common;
  agent.handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kPrepare), encode(order));
}

void Job::answered(Agent& agent, const Prepared& answer) {
  agent.facts = answer.facts;
  if (agent.handle.remote) agent.heart = Heartbeat(std::chrono::duration_cast<Duration>(kHostSilence), Clock::now());
  queue_.answered(agent.index);
  go_on();
}

void Job::refused(Agent& agent, const Refused& why) {
  // An agent that could start some ranks but not others: the others must go too.
  if (started_) return fail_start(why.exit_code, why.text);
  queue_.answered(agent.index);
  const bool program = why.exit_code != exit_code::kUnusable && why.exit_code != exit_code::kInternal;
  faults_.push_back({.code = why.exit_code, .text = why.text, .program = program});
  go_on();
}

// The agent's process has ended before it answered.
void Job::start_failed(Agent& agent) {
  const int code = WIFEXITED(agent.wait_status) ? WEXITSTATUS(agent.wait_status) : 0;
  const bool may_pass = agent.handle.remote && ssh_may_pass(code, agent.printed);
  if (queue_.failed(agent.index, may_pass, Clock::now())) {
    agent.up = false;
    return;
  }
  const std::string why =
      agent.handle.remote
          ? ssh_failure(code, agent.printed)
          : "the agent ended before it answered (" +
                cause_of_end(WIFSIGNALED(agent.wait_status) ? WTERMSIG(agent.wait_status) : 0, code, false) + ")";
  faults_.push_back({.code = exit_code::kUnusable, .text = "host " + agent.host + ": " + why});
  go_on();
}

// Once every host has answered or failed.
void Job::go_on() {
  if (queue_.pending() || started_ || verdict_.ending()) return;
  if (!faults_.empty()) return refuse_start();
  if (!config_.several_machines) return start_ranks();
  if (!probing_) open_probes();
}

void Job::open_probes() {
  probing_ = true;
  auto listener = ProbeListener::open();
  if (listener.ok()) {
    listener_.emplace(*std::move(listener));
    if (const Status status = listener_->answer(key_, {.job_id = config_.plan.job_id}); !status.ok()) {
      return fail_start(exit_code::kUnusable, status.message());
    }
  } else {
    return fail_start(exit_code::kUnusable, listener.status().message());
  }
  probed_head_ = ProbedHost{
      .name = "this machine", .addresses = eligible(scan_addresses(), config_.network), .port = listener_->port()};
  for (const auto& agent : agents_) {
    probed_hosts_.push_back({.name = agent->host,
                             .addresses = eligible(agent->facts->candidates, config_.network),
                             .port = agent->facts->probe_port});
  }
  const auto* key = reinterpret_cast<const std::byte*>(key_.data());
  for (const auto& agent : agents_) {
    const int host = static_cast<int>(agent->index);
    const Probe order{.key = {key, key + net::JobKey::kBytes},
                      .host = host,
                      .targets = probe_targets(host, probed_hosts_, probed_head_)};
    agent->handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kProbe), encode(order));
  }
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
    config_.plan.assignment.reasons.push_back(chosen.reason);
  }
  auto store = net::parse_address(store_->address());
  if (!store.ok()) return fail_start(exit_code::kInternal, store.status().message());
  store->host = choice->head->candidate.address;
  config_.plan.store = net::to_string(*store);
  listener_.reset();
  start_ranks();
}

void Job::refuse_start() {
  // A program that is nowhere is a wrong command; one that some hosts lack makes those hosts unusable.
  const bool everywhere =
      faults_.size() == agents_.size() &&
      std::all_of(faults_.begin(), faults_.end(), [](const StartFault& one) { return one.program; });
  const bool one_host = agents_.size() == 1;
  std::string text = faults_.front().text;
  if (!one_host && !everywhere) {
    text = "the job cannot start, because of " + counted(faults_.size(), "host") + " of " +
           std::to_string(agents_.size()) + ":";
    for (const StartFault& fault : faults_) text += "\n  " + fault.text;
  }
  fail_start(one_host || everywhere ? faults_.front().code : exit_code::kUnusable, text);
}

void Job::start_ranks() {
  started_ = true;
  std::vector<HostFacts> facts;
  for (const auto& agent : agents_) facts.push_back(*agent->facts);
  const auto plan = make_plan(config_.plan, facts);
  if (!plan.ok()) return fail_start(exit_code::kUsage, plan.status().message());
  const auto* key = reinterpret_cast<const std::byte*>(key_.data());
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const Start order{.plan = plan->hosts[i], .key = {key, key + net::JobKey::kBytes}};
    agents_[i]->handle.pipe.send(static_cast<std::uint8_t>(ToAgent::kStart), encode(order));
  }
  input_.allow();
}

}  // namespace distrun::launcher
