#include "launcher/plan/network/network.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace distrun::launcher {
namespace {

using Texts = std::vector<std::string>;

NetworkFilter network(const std::string& text) {
  INFO(text);
  auto filter = parse_network(text);
  INFO((filter.ok() ? "" : filter.status().message()));
  REQUIRE(filter.ok());
  return *std::move(filter);
}

Texts kept(const std::vector<Candidate>& candidates, const NetworkFilter& filter = {}) {
  Texts out;
  for (const Candidate& candidate : eligible(candidates, filter).candidates) out.push_back(candidate.address);
  return out;
}

std::string why_not(const Candidate& candidate, const NetworkFilter& filter = {}) {
  const Eligible result = eligible({candidate}, filter);
  CHECK(result.candidates.empty());
  return result.rejected.empty() ? "" : result.rejected[0].why;
}

const std::vector<Candidate>& typical_host() {
  static const std::vector<Candidate> all = {
      {"lo", "127.0.0.1"},     {"docker0", "172.17.0.1"}, {"eth0", "203.0.113.7"},
      {"eth1", "192.168.1.7"}, {"ib0", "10.1.0.7"},       {"lo", "::1"},
      {"eth0", "fe80::1"},     {"eth0", "2001:db8::7"},   {"tailscale0", "100.64.0.7"}};
  return all;
}

TEST_CASE("what may be tried, best first") {
  CHECK(kept(typical_host()) ==
        Texts{"10.1.0.7", "192.168.1.7", "203.0.113.7", "2001:db8::7", "100.64.0.7", "172.17.0.1"});
  const Eligible result = eligible(typical_host(), {});
  REQUIRE(result.rejected.size() == 3);
  CHECK(to_text(result.rejected[0].candidate) == "127.0.0.1 (lo)");
}

TEST_CASE("of interfaces of one kind the fastest comes first") {
  CHECK(kept({{"eno1", "10.0.0.1", 1000}, {"ens1", "10.1.0.1", 100000}, {"ens2", "10.2.0.1", 100000}}) ==
        Texts{"10.1.0.1", "10.2.0.1", "10.0.0.1"});
  // The kind of the network is more important than its speed.
  CHECK(kept({{"ib0", "10.0.0.1", 100}, {"eth0", "10.1.0.1", 1000}, {"eth1", "192.0.2.1", 100000}}) ==
        Texts{"10.0.0.1", "10.1.0.1", "192.0.2.1"});
  CHECK(kept({{"eth0", "10.0.0.1", 1000}, {"eth1", "10.1.0.1", 9000}}, network("eth0,eth1")) ==
        Texts{"10.0.0.1", "10.1.0.1"});
  // An interface of unknown speed may be the fastest, so it is not placed after the others. It is placed only after the
  // faster of two interfaces with known speeds.
  CHECK(kept({{"eth0", "10.0.0.1"}, {"eth1", "10.1.0.1", 100000}, {"eth2", "10.2.0.1"}}) ==
        Texts{"10.0.0.1", "10.1.0.1", "10.2.0.1"});
  CHECK(kept({{"eth0", "10.0.0.1"}, {"eth1", "10.1.0.1", 1000}, {"eth2", "10.2.0.1", 100000}}) ==
        Texts{"10.2.0.1", "10.0.0.1", "10.1.0.1"});
}

TEST_CASE("bridges of containers come last, however they are named") {
  for (const std::string bridge : {"docker0", "br-0a1b2c3d", "virbr0", "veth12ab", "cni0", "lxcbr0", "podman1"}) {
    INFO(bridge);
    CHECK(kept({{bridge, "10.0.0.1"}, {"eth0", "fd00::1"}}) == Texts{"fd00::1", "10.0.0.1"});
  }
  CHECK(kept({{"br0", "10.0.0.1"}, {"eth0", "10.0.0.2"}}) == Texts{"10.0.0.1", "10.0.0.2"});
  CHECK(kept({{"lo", "10.0.0.1"}, {"eth0", "10.0.0.2"}}) == Texts{"10.0.0.2", "10.0.0.1"});
}

TEST_CASE("what is never tried says why") {
  CHECK(why_not({"lo", "127.0.1.1"}).find("loopback") != std::string::npos);
  CHECK(why_not({"lo", "::1"}).find("loopback") != std::string::npos);
  CHECK(why_not({"eth0", "169.254.3.4"}).find("link-local") != std::string::npos);
  CHECK(why_not({"eth0", "fe80::1"}).find("link-local") != std::string::npos);
  CHECK(why_not({"eth0", "febf::1"}).find("link-local") != std::string::npos);
  for (const std::string text : {"0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"}) {
    CHECK(why_not({"eth0", text}) == "not the address of a single host");
  }
  CHECK(why_not({"eth0", "node1"}) == "not a numeric address");
  CHECK(why_not({"eth0", "10.0.0.1"}, network("eth1,192.168.0.0/16")) == "not in --network eth1,192.168.0.0/16");
}

TEST_CASE("--network chooses, in its order") {
  CHECK(kept(typical_host(), network("eth1")) == Texts{"192.168.1.7"});
  CHECK(kept(typical_host(), network("eth*")) == Texts{"192.168.1.7", "203.0.113.7", "2001:db8::7"});
  CHECK(kept(typical_host(), network("2001:db8::/32,eth1")) == Texts{"2001:db8::7", "192.168.1.7"});
  CHECK(kept(typical_host(), network("docker0,ib?")) == Texts{"172.17.0.1", "10.1.0.7"});
  CHECK(kept(typical_host(), network("192.168.1.7")) == Texts{"192.168.1.7"});
  CHECK(kept(typical_host(), network("10.0.0.0/15")) == Texts{"10.1.0.7"});
  CHECK(kept(typical_host(), network("10.0.0.0/16")).empty());
  CHECK(kept(typical_host(), network("10.2.3.4/8")) == Texts{"10.1.0.7"});  // bits after the prefix are ignored
}

TEST_CASE("loopback is tried only for who writes it") {
  CHECK(kept(typical_host(), network("lo")) == Texts{"127.0.0.1", "::1"});
  CHECK(kept(typical_host(), network("127.0.0.0/8")) == Texts{"127.0.0.1"});
  CHECK(kept({{"lo", "127.0.0.1"}}, network("*")).empty());
  CHECK(kept({{"lo", "127.0.0.1"}}, network("0.0.0.0/0")).empty());
  CHECK(kept({{"eth0", "169.254.1.1"}, {"eth0", "fe80::1"}}, network("eth0")) == Texts{"169.254.1.1"});
}

TEST_CASE("of a host with very many addresses the best ones are tried") {
  std::vector<Candidate> many;
  for (int i = 1; i <= 20; ++i) many.push_back({"veth" + std::to_string(i), "10.0.0." + std::to_string(i)});
  many.push_back({"eth0", "192.168.1.7"});
  const Eligible result = eligible(many, {});
  CHECK(result.candidates.size() == kMostTried);
  CHECK(result.candidates[0].address == "192.168.1.7");
  CHECK(result.rejected.size() == many.size() - kMostTried);
}

TEST_CASE("faults of --network are shown where they are") {
  struct Example {
    std::string text;
    std::size_t column;  // 1-based
  };
  for (const auto& [text, column] : std::vector<Example>{{"", 1},
                                                         {"eth0,", 6},
                                                         {"eth0,,eth1", 6},
                                                         {"eth 0", 4},
                                                         {"eth0,10.0.0.0/33", 15},
                                                         {"10.0.0.0/", 10},
                                                         {"10.0.0.0/-1", 10},
                                                         {"10.0.0.0/8x", 10},
                                                         {"10.0.0", 1},
                                                         {"10.0.0.0.0/8", 1},
                                                         {"fd00::/129", 8},
                                                         {"fd00:::1", 1},
                                                         {"eth0/8", 1},
                                                         {"an-interface-name", 16},
                                                         {"eth\n", 4}}) {
    INFO(text);
    const auto filter = parse_network(text);
    REQUIRE_FALSE(filter.ok());
    CHECK(filter.status().code() == Errc::kInvalidArgument);
    CHECK(filter.status().message().starts_with("--network, column " + std::to_string(column) + ": "));
  }
}

TEST_CASE("this machine has a network where the address that the others use is one that works") {
  const std::vector<Candidate> working = {{"lo", "127.0.0.1"}, {"eth0", "10.0.0.7"}, {"eth0", "fd00::7"}};
  CHECK(has_network(working, "10.0.0.7"));
  CHECK(has_network(working, "fd00::7"));
  CHECK_FALSE(has_network(working, "10.1.0.7"));  // its interface has no cable
  CHECK(has_network(working, ""));                // unknown: any network will do
  CHECK(has_network(working, "127.0.0.1"));
  CHECK_FALSE(has_network({{"lo", "127.0.0.1"}, {"lo", "::1"}}, ""));
  CHECK_FALSE(has_network({}, "10.0.0.7"));
}

}  // namespace
}  // namespace distrun::launcher
