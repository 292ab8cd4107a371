// The parts of a job's start: agents that start other agents, and hosts that try each other's addresses.
#include <algorithm>
#include <cstring>
#include <future>

#include "launcher/agent/join.h"
#include "launcher/job/start/agent_tree.h"
#include "launcher/job/start/probe_round.h"
#include "test/support/text.h"
#include "test/unit/launcher/job/job_parts.h"

namespace distrun::launcher {
namespace {

using distrun::test::has;
using Indexes = std::vector<std::size_t>;

struct SshSpawner final : FakeSpawner {
  [[nodiscard]] const SshOptions* ssh(const std::string&, const std::string&) const override { return &options; }
  SshOptions options;
};

// Six hosts: the head starts a and b, a starts c and d, b starts e and f. Only the loopback interface is used.
struct Tree {
  explicit Tree(int fan_out = 2) {
    for (std::size_t i = 0; i < 2; ++i) agents[i].handle = *spawner.start(agents[i].host, "");
    config.fan_out = fan_out;
    tree.emplace(config, agents, queue, spawner);
    tree->open();
  }
  // The last order that this starter received.
  std::optional<StartHosts> order(std::size_t starter) {
    tree->order_starts(agents[starter], Clock::now());
    agents.flush_all();
    for (const Frame& frame : spawner.sent_to(agents[starter].host)) {
      if (frame.type == static_cast<std::uint8_t>(ToAgent::kStartHosts)) return *decode<StartHosts>(frame.payload);
    }
    return std::nullopt;
  }
  // Runs one round of the head's loop while an agent with that order joins. Returns the error that the agent gets.
  Status join(const StartHosts& order, const std::string& purpose) {
    const auto key =
        net::JobKey::from_bytes(reinterpret_cast<const unsigned char*>(order.key.data()), order.key.size());
    auto agent = std::async(std::launch::async, [&] {
      return net::connect_secure(order.addresses.front(), *key, {.purpose = purpose, .job_id = order.job_id},
                                 deadline_after(20))
          .status();
    });
    Poller poller;
    while (agent.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      poller.clear();
      tree->watch(poller, [&](AgentLink& link, AgentHandle, TimePoint) { joined.push_back(link.index); });
      REQUIRE(poller.wait(deadline_after(0.01)).ok());
    }
    return agent.get();
  }
  SshSpawner spawner;
  std::vector<std::string> said;
  AgentLinks agents{assignment_of({"a", "b", "c", "d", "e", "f"}), spawner, false, {}};
  StartQueue queue{6, {}};
  std::vector<std::string> logged;
  const Log log{"warning", -1, [this](const std::string& line) { logged.push_back(line); }};
  AgentTree::Config config{.job_id = "j",
                           .network = *parse_network("lo"),
                           .verbose = true,
                           .print = [this](const std::string& text) { said.push_back(text); },
                           .log = &log};
  std::optional<AgentTree> tree;
  Indexes joined;
};

TEST_CASE("an agent that is up is told which hosts it is to start") {
  Tree job;
  CHECK(job.queue.due(Clock::now()) == Indexes{0, 1});
  REQUIRE(job.said.size() == 1);
  CHECK(has(job.said[0], "2 of 6 are started from this machine"));
  const auto order = job.order(1);
  REQUIRE(order);
  CHECK(order->job_id == "j");
  CHECK_FALSE(order->addresses.empty());
  std::vector<std::string> names;
  for (const auto& host : order->hosts) names.push_back(std::to_string(host.index) + host.name);
  CHECK(names == std::vector<std::string>{"4e", "5f"});
}

TEST_CASE("with few hosts there is no tree") {
  Tree job(6);
  CHECK(job.said.empty());
  CHECK(job.queue.due(Clock::now()).size() == 6);
  CHECK_FALSE(job.order(0));
  Poller poller;
  job.tree->watch(poller, [](AgentLink&, AgentHandle, TimePoint) { FAIL("nobody can join"); });
  job.tree->host_failed(job.agents[0], {.index = 2, .text = "no way"});
  job.tree->take_back_from(job.agents[0], "it is gone");
  CHECK(job.queue.due(Clock::now()).empty());
}

TEST_CASE("a host that joins counts as running, once") {
  Tree job;
  const auto order = job.order(0);
  REQUIRE(order);
  CHECK(job.join(*order, kJoinPurpose + std::string("2")).ok());
  CHECK(job.joined == Indexes{2});
  CHECK_FALSE(job.queue.handed_over(2));
  CHECK(job.logged.empty());
  CHECK(has(job.join(*order, kJoinPurpose + std::string("2")).message(), "host c has an agent already"));
  REQUIRE(job.logged.size() == 1);
  CHECK(has(job.logged[0], "turned away join:2: host c has an agent already"));
  for (const char* wrong : {"store", "join:6", "join:-1", "join:x"}) {
    CHECK(has(job.join(*order, wrong).message(), "for agents that other agents of this job have started"));
  }
  CHECK(job.joined == Indexes{2});
}

TEST_CASE("what another host cannot start is started from here, and the reason is kept") {
  Tree job;
  REQUIRE(job.queue.due(Clock::now()).size() == 2);
  job.tree->host_failed(job.agents[1], {.index = 2, .text = "it is not its host"});
  job.tree->host_failed(job.agents[0], {.index = 6, .text = "there is none"});
  CHECK(job.queue.due(Clock::now()).empty());
  job.tree->host_failed(job.agents[0], {.index = 2, .text = "ssh: no route"});
  CHECK(job.queue.due(Clock::now()) == Indexes{2});
  CHECK(job.agents[2].tried == " (before that, host a was to start it: ssh: no route)");
  job.tree->take_back_from(job.agents[1], "it is gone");
  CHECK(job.queue.due(Clock::now()) == Indexes{4, 5});
  CHECK(job.said.size() == 2);  // the reason for the tree, and the first failure
}

TEST_CASE("a host that has not come in time is started from here") {
  Tree job;
  REQUIRE(job.queue.due(Clock::now()).size() == 2);
  REQUIRE(job.order(0));
  job.tree->take_back_late(Clock::now() + std::chrono::seconds(19));
  CHECK(job.queue.due(Clock::now()).empty());
  job.tree->take_back_late(Clock::now() + std::chrono::seconds(21));
  CHECK(job.queue.due(Clock::now()) == Indexes{2, 3});
}

HostFacts facts_of(const std::string& address, std::uint16_t port) {
  HostFacts out;
  out.candidates = {{.interface = "eth0", .address = address}};
  out.probe_port = port;
  return out;
}

TEST_CASE("each host is to try the others, and the head once that listens") {
  const net::JobKey key = net::JobKey::generate();
  ProbeRound round(key, "j", *parse_network("eth0,lo"));
  round.add("a", facts_of("10.0.0.1", 71));
  round.add("b", facts_of("10.0.0.2", 72));
  const Probe first = round.order(0);
  CHECK(first.host == 0);
  CHECK(std::memcmp(first.key.data(), key.data(), net::JobKey::kBytes) == 0);
  CHECK(first.targets == std::vector<ProbeTarget>{{.host = 1, .candidate = 0, .address = "10.0.0.2:72"}});
  REQUIRE(round.listen().ok());
  const Probe second = round.order(1);
  const auto of_head = [](const ProbeTarget& target) { return target.host == kHeadHost; };
  CHECK(std::count_if(second.targets.begin(), second.targets.end(), of_head) > 0);
  REQUIRE(round.listen().ok());
  CHECK(round.order(1).targets == second.targets);  // the port is the same
}

TEST_CASE("addresses follow from what the hosts have reached") {
  ProbeRound round(net::JobKey::generate(), "j", *parse_network("eth0"));
  round.add("a", facts_of("10.0.0.1", 71));
  round.add("b", facts_of("10.0.0.2", 72));
  const auto choice = round.choose({{{.host = 1}}, {{.host = 0}}});
  REQUIRE(choice.ok());
  REQUIRE(choice->hosts.size() == 2);
  CHECK(choice->hosts[1].candidate.address == "10.0.0.2");
  CHECK_FALSE(choice->head);
  const auto none = round.choose({{{.host = 1, .failure = "no route to host"}}, {{.host = 0}}});
  REQUIRE_FALSE(none.ok());
  CHECK(has(none.status().message(), "no route to host"));
}

}  // namespace
}  // namespace distrun::launcher
