// choose_addresses and the addresses that are tried, with hosts as plain values.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "launcher/plan/network/network.h"
#include "runtime/base/clock.h"
#include "runtime/base/ended_link.h"
#include "test/support/text.h"

namespace distrun::launcher {
namespace {

using Reports = std::vector<std::vector<ProbeResult>>;
// Returns why `from` does not reach the address, or "".
using Wire = std::function<std::string(int from, int to, const std::string& address)>;

using distrun::test::has;

// The hosts node1, node2, ... Each has an address of the network 10 on eth0, and one of docker's.
std::vector<ProbedHost> nodes(int count) {
  std::vector<ProbedHost> out;
  for (int i = 1; i <= count; ++i) {
    ProbedHost host{.name = "node" + std::to_string(i), .port = 4000};
    host.addresses = eligible({{"docker0", "172.17.0.1"},
                               {"lo", "127.0.0.1"},
                               {"eth0", "10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256)}},
                              {});
    out.push_back(std::move(host));
  }
  return out;
}

// The results that the agents would report.
Reports probe(const std::vector<ProbedHost>& hosts, const std::optional<ProbedHost>& head, const Wire& wire) {
  Reports out(hosts.size());
  for (std::size_t from = 0; from < hosts.size(); ++from) {
    for (const ProbeTarget& target : probe_targets(static_cast<int>(from), hosts, head)) {
      const std::string address = target.address.substr(0, target.address.rfind(':'));
      out[from].push_back({.host = target.host,
                           .candidate = target.candidate,
                           .failure = wire(static_cast<int>(from), target.host, address)});
    }
  }
  return out;
}

std::string docker_fails(int, int, const std::string& address) {
  return address == "172.17.0.1" ? "this host itself answers there" : "";
}

// The bridge of docker never works, and the pairs (from, to) do not work either.
Wire cut(std::set<std::pair<int, int>> pairs) {
  return [pairs = std::move(pairs)](int from, int to, const std::string& address) {
    return pairs.contains({from, to}) ? "no answer within 3 s" : docker_fails(from, to, address);
  };
}

std::string error_of(const std::vector<ProbedHost>& hosts, const Wire& wire) {
  const auto choice = choose_addresses(hosts, std::nullopt, probe(hosts, std::nullopt, wire));
  REQUIRE_FALSE(choice.ok());
  return choice.status().message();
}

TEST_CASE("all pairs are tried up to 32 hosts, above it a few for each") {
  CHECK(pairs_to_probe(1).empty());
  CHECK(pairs_to_probe(2) == std::vector<std::pair<int, int>>{{0, 1}, {1, 0}});
  CHECK(pairs_to_probe(32).size() == 32 * 31);
  for (const int hosts : {33, 1000}) {
    const auto pairs = pairs_to_probe(hosts);
    const std::set<std::pair<int, int>> set(pairs.begin(), pairs.end());
    CHECK(set.size() == pairs.size());
    CHECK(pairs.size() <= static_cast<std::size_t>(hosts) * 10);
    for (int host = 0; host < hosts; ++host) {
      if (host > 0) CHECK((set.contains({host, 0}) && set.contains({0, host})));
      for (int step = 1; step <= 4; ++step) {
        const int next = (host + step) % hosts;
        CHECK((set.contains({host, next}) && set.contains({next, host})));
      }
      CHECK_FALSE(set.contains({host, host}));
    }
  }
}

TEST_CASE("targets carry the port, IPv6 in brackets, and the head when it listens") {
  std::vector<ProbedHost> hosts = nodes(2);
  hosts[1].addresses = eligible({{"eth0", "fd00::2"}}, {});
  const ProbedHost head{.name = "login", .addresses = eligible({{"eth0", "10.0.0.9"}}, {}), .port = 5000};
  CHECK(probe_targets(0, hosts, head) ==
        std::vector<ProbeTarget>{{kHeadHost, 0, "10.0.0.9:5000"}, {1, 0, "[fd00::2]:4000"}});
  CHECK(probe_targets(1, hosts, std::nullopt) ==
        std::vector<ProbeTarget>{{0, 0, "10.0.0.1:4000"}, {0, 1, "172.17.0.1:4000"}});
}

// Code that needs quadratic time in the number of hosts would exceed the test's time limit.
TEST_CASE("the targets of thousands of hosts are the pairs to probe") {
  const std::vector<ProbedHost> hosts = nodes(5000);
  std::size_t pairs = 0;
  for (int host = 0; host < 5000; ++host) {
    std::set<int> tried;
    for (const ProbeTarget& target : probe_targets(host, hosts, std::nullopt)) tried.insert(target.host);
    pairs += tried.size();
  }
  CHECK(pairs == pairs_to_probe(5000).size());
}

TEST_CASE("the best address that all reach is chosen, for each host on its own") {
  std::vector<ProbedHost> hosts = nodes(3);
  hosts[2].addresses = eligible({{"enp3s0", "10.0.0.3"}, {"ib0", "10.9.0.3"}}, {});
  const Reports reports = probe(hosts, std::nullopt, [](int from, int to, const std::string& address) {
    return address == "10.9.0.3" && from == 1 ? "no answer within 3 s" : docker_fails(from, to, address);
  });
  const auto choice = choose_addresses(hosts, std::nullopt, reports);
  REQUIRE(choice.ok());
  REQUIRE(choice->hosts.size() == 3);
  CHECK(choice->hosts[0].candidate == Candidate{"eth0", "10.0.0.1"});
  CHECK(choice->hosts[0].reason == "node1: 10.0.0.1 (eth0), reached by all 2 hosts that tried");
  CHECK(choice->hosts[2].candidate == Candidate{"enp3s0", "10.0.0.3"});
  CHECK(choice->hosts[2].reason ==
        "node3: 10.0.0.3 (enp3s0), reached by all 2 hosts that tried; not 10.9.0.3 (ib0): node2 does not reach it (no "
        "answer within 3 s)");
}

TEST_CASE("one host needs no network, but its head's address") {
  const auto hosts = nodes(1);
  const auto alone = choose_addresses(hosts, std::nullopt, {});
  REQUIRE(alone.ok());
  CHECK(alone->hosts[0].candidate.address == "127.0.0.1");
  CHECK_FALSE(alone->head);
  const ProbedHost head{.name = "login", .addresses = eligible({{"eth0", "10.0.0.9"}}, {}), .port = 5000};
  const auto with_head = choose_addresses(hosts, head, probe(hosts, head, docker_fails));
  REQUIRE(with_head.ok());
  CHECK(with_head->head->candidate.address == "10.0.0.9");
  CHECK(with_head->head->reason == "login: 10.0.0.9 (eth0), reached by node1");
  const auto cut_off = choose_addresses(hosts, head, probe(hosts, head, cut({{0, kHeadHost}})));
  REQUIRE_FALSE(cut_off.ok());
  CHECK(cut_off.status().message().starts_with(
      "no other host reaches login\n  node1 -> login: 10.0.0.9 (eth0): no answer"));
}

TEST_CASE("a host that nobody reaches is named with the pairs that failed") {
  const std::string error = error_of(nodes(3), cut({{0, 2}, {1, 2}}));
  CHECK(error.starts_with("no other host reaches node3\n"));
  CHECK(has(error, "\n  node1 -> node3: 10.0.0.3 (eth0): no answer within 3 s\n"));
  CHECK(has(error, "\n  node2 -> node3: 172.17.0.1 (docker0): no answer within 3 s\n"));
  CHECK_FALSE(has(error, "-> node1"));
  CHECK(has(error, "--network"));
  // node3 is cut off in both directions, so it spoils the addresses of all hosts. The error must still name node3.
  CHECK(error_of(nodes(3), cut({{0, 2}, {1, 2}, {2, 0}, {2, 1}})).starts_with("no other host reaches node3\n"));
}

TEST_CASE("of ways that lose large messages the cure stands once") {
  const auto hosts = nodes(2);
  Reports reports = probe(hosts, std::nullopt, cut({{0, 1}, {1, 0}}));
  for (auto& host : reports) {
    for (ProbeResult& result : host)
      result = {result.host, result.candidate, kLargeMessagesLost, LinkEnd::kLargeSilent};
  }
  const std::string error = choose_addresses(hosts, std::nullopt, reports).status().message();
  CHECK(has(error, std::string("\n  ") + kLargeMessagesLost + ":\n    node"));
  CHECK(has(error, "\n    node1 -> node2: 10.0.0.2 (eth0)\n"));
  CHECK(has(error, "\n    node2 -> node1: 10.0.0.1 (eth0)\n"));
  CHECK(error.find(kLargeMessagesLost) == error.rfind(kLargeMessagesLost));
}

TEST_CASE("one-way cuts, single pairs and disjoint networks are told apart") {
  CHECK(error_of(nodes(3), cut({{2, 0}, {2, 1}})).starts_with("node3 reaches no other host\n  node3 -> node1"));
  const std::string pair = error_of(nodes(3), cut({{0, 1}}));
  CHECK(pair.starts_with("some hosts do not reach each other\n  node1 -> node2: 10.0.0.2 (eth0)"));
  std::vector<ProbedHost> hosts = nodes(3);
  hosts[0].addresses = eligible({{"eth0", "10.0.0.1"}, {"eth1", "10.1.0.1"}}, {});
  const std::string disjoint = error_of(hosts, [](int from, int to, const std::string& address) -> std::string {
    if (to == 0) return (from == 1) == (address == "10.0.0.1") ? "" : "no route";
    return docker_fails(from, to, address);
  });
  CHECK(disjoint.starts_with("no address of node1 is reachable from all hosts\n"));
  CHECK(has(disjoint, "node2 -> node1: 10.1.0.1 (eth1): no route"));
  CHECK(has(disjoint, "node3 -> node1: 10.0.0.1 (eth0): no route"));
}

TEST_CASE("a host without addresses says which ones it has") {
  std::vector<ProbedHost> hosts = nodes(2);
  hosts[1].addresses = eligible({{"lo", "127.0.0.1"}}, {});
  const std::string error = error_of(hosts, docker_fails);
  CHECK(error.starts_with("no other host reaches node2\n  node2 has no address to try: 127.0.0.1 (lo), a loopback"));
}

TEST_CASE("an agent that reports nothing is no proof") {
  const auto hosts = nodes(2);
  Reports reports = probe(hosts, std::nullopt, docker_fails);
  reports[1].clear();
  const auto choice = choose_addresses(hosts, std::nullopt, reports);
  REQUIRE_FALSE(choice.ok());
  CHECK(has(choice.status().message(), "node2 -> node1: 10.0.0.1 (eth0): that host did not report a result"));
}

TEST_CASE("a thousand hosts are chosen for, and an error stays readable") {
  const auto hosts = nodes(1000);
  const Reports good = probe(hosts, std::nullopt, docker_fails);
  const auto choice = choose_addresses(hosts, std::nullopt, good);
  REQUIRE(choice.ok());
  CHECK(choice->hosts[999].candidate.address == "10.0.3.232");
  const std::string error = error_of(hosts, [](int, int, const std::string&) { return "no answer"; });
  CHECK(error.starts_with("no other host reaches node[1-1000]\n"));
  CHECK(has(error, " more\n"));
  CHECK(error.size() < 8000);
}

}  // namespace
}  // namespace distrun::launcher
