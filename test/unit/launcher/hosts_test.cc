#include "launcher/plan/hosts.h"

#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/assign.h"

namespace distrun::launcher {
namespace {

std::string fault(const Result<std::vector<HostSlots>>& result) {
  REQUIRE_FALSE(result.ok());
  return result.status().message();
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_CASE("-H names hosts and slots") {
  const auto hosts = parse_hosts("node-1:4,me@n2:2,[::1]:3,plain");
  REQUIRE(hosts.ok());
  REQUIRE(hosts->size() == 4);
  CHECK((*hosts)[0] == HostSlots{.name = "node-1", .slots = 4});
  CHECK((*hosts)[1] == HostSlots{.name = "n2", .user = "me", .slots = 2});
  CHECK((*hosts)[2] == HostSlots{.name = "::1", .slots = 3});
  CHECK((*hosts)[3] == HostSlots{.name = "plain"});
}

TEST_CASE("a host that is named twice adds its slots") {
  const auto hosts = parse_hosts("a:4,b:1,a:2");
  REQUIRE(hosts.ok());
  REQUIRE(hosts->size() == 2);
  CHECK((*hosts)[0].slots == 6);
}

TEST_CASE("a fault in -H has its column and a caret below it") {
  const std::string text = fault(parse_hosts("localhost:x"));
  CHECK(has(text, "column 11"));
  CHECK(has(text, "'x' is not a number of slots"));
  CHECK(text.ends_with("\n  localhost:x\n            ^"));
  CHECK(has(fault(parse_hosts("a:2,,b")), "column 5"));
  CHECK(has(fault(parse_hosts("a:2,")), "column 5"));
  CHECK(has(fault(parse_hosts("")), "host name is missing"));
  CHECK(has(fault(parse_hosts("a:0")), "not a number of slots"));
  CHECK(has(fault(parse_hosts("a:-1")), "not a number of slots"));
  CHECK(has(fault(parse_hosts("a:99999999999999")), "not a number of slots"));
  CHECK(has(fault(parse_hosts("-oProxyCommand=x")), "cannot start with '-'"));
  CHECK(has(fault(parse_hosts("a b:1")), "column 2"));
  CHECK(has(fault(parse_hosts("$(id):1")), "cannot be part of a host name"));
  CHECK(has(fault(parse_hosts("::1:4")), "needs brackets"));
  CHECK(has(fault(parse_hosts("[::1:4")), "no matching ']'"));
  CHECK(has(fault(parse_hosts("[::1]4")), "expected ':'"));
}

TEST_CASE("the hostfile dialects") {
  const auto hosts = parse_hostfile("# cluster\r\n\r\nh1 slots=4 max_slots=8 # big\r\nh2:2\nh3\nh3\nh3\n", "hosts");
  REQUIRE(hosts.ok());
  REQUIRE(hosts->size() == 3);
  CHECK((*hosts)[0] == HostSlots{.name = "h1", .slots = 4, .max_slots = 8});
  CHECK((*hosts)[1].slots == 2);
  CHECK((*hosts)[2].slots == 3);
}

TEST_CASE("a fault in a hostfile has file, line and column") {
  const std::string text = fault(parse_hostfile("h1 slots=4\nh2 slots=no\n", "my.hosts"));
  CHECK(has(text, "my.hosts:2:10: 'no' is not a number of slots"));
  CHECK(has(fault(parse_hostfile("h1 cores=4\n", "f")), "'cores=4' is not known here"));
  CHECK(has(fault(parse_hostfile("h1 slots=4 max_slots=2\n", "f")), "slots is larger than max_slots"));
  CHECK(has(fault(parse_hostfile("h1 slots\n", "f")), "not a number of slots"));
  CHECK(has(fault(parse_hostfile("\n# nothing\n", "f")), "names no host"));
}

TEST_CASE("ranks fill host after host") {
  const auto plan = assign({.hosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 3}}, .ranks = 4});
  REQUIRE(plan.ok());
  REQUIRE(plan->places.size() == 4);
  CHECK(plan->places[1] ==
        Place{.rank = 1, .host = 0, .local_rank = 1, .local_size = 2, .cross_rank = 0, .cross_size = 2});
  CHECK(plan->places[2] ==
        Place{.rank = 2, .host = 1, .local_rank = 0, .local_size = 2, .cross_rank = 1, .cross_size = 2});
  CHECK_FALSE(plan->oversubscribed);
}

TEST_CASE("cross ranks count only hosts that have the local rank") {
  const auto plan =
      assign({.hosts = {{.name = "a", .slots = 1}, {.name = "b", .slots = 2}, {.name = "c", .slots = 2}}});
  REQUIRE(plan.ok());
  REQUIRE(plan->places.size() == 5);
  CHECK(plan->places[4] ==
        Place{.rank = 4, .host = 2, .local_rank = 1, .local_size = 2, .cross_rank = 1, .cross_size = 2});
}

TEST_CASE("a host without ranks is not in the plan") {
  const auto plan = assign({.hosts = {{.name = "a", .slots = 4}, {.name = "b", .slots = 4}}, .ranks = 2});
  REQUIRE(plan.ok());
  CHECK(plan->hosts == std::vector<std::string>{"a"});
}

TEST_CASE("more ranks than slots need --oversubscribe") {
  const AssignRequest request{.hosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 2}}, .ranks = 6};
  const auto refused = assign(request);
  REQUIRE_FALSE(refused.ok());
  CHECK(has(refused.status().message(), "6 ranks do not fit into 4 slots"));
  CHECK(has(refused.status().message(), "-H a:3,b:3"));
  CHECK(has(refused.status().message(), "--oversubscribe"));
  AssignRequest allowed = request;
  allowed.oversubscribe = true;
  const auto plan = assign(allowed);
  REQUIRE(plan.ok());
  CHECK(plan->oversubscribed);
  CHECK(plan->places[3].host == 1);
  CHECK(plan->places[5].local_size == 3);
}

TEST_CASE("max_slots holds even with --oversubscribe") {
  const AssignRequest request{.hosts = {{.name = "a", .slots = 1, .max_slots = 2}, {.name = "b", .slots = 1}},
                              .ranks = 5,
                              .oversubscribe = true};
  const auto plan = assign(request);
  REQUIRE(plan.ok());
  CHECK(plan->places[1].host == 0);
  CHECK(plan->places[2].host == 1);
  AssignRequest too_many = request;
  too_many.hosts[1].max_slots = 2;
  REQUIRE_FALSE(assign(too_many).ok());
}

TEST_CASE("without hosts there are as many slots as ranks") {
  const auto plan = assign({.ranks = 3});
  REQUIRE(plan.ok());
  CHECK(plan->hosts == std::vector<std::string>{"localhost"});
  CHECK(plan->places.size() == 3);
  REQUIRE_FALSE(assign({}).ok());
}

TEST_CASE("all names of this machine are one host, others are refused") {
  const std::vector<std::string> own = {"localhost", "127.0.0.1", "box"};
  const auto hosts = keep_local({{.name = "box", .slots = 2}, {.name = "127.0.0.1", .slots = 1}}, own);
  REQUIRE(hosts.ok());
  REQUIRE(hosts->size() == 1);
  CHECK((*hosts)[0].name == "box");
  CHECK((*hosts)[0].slots == 3);
  CHECK(has(fault(keep_local({{.name = "node7"}}, own)), "host node7 is another machine"));
  CHECK(has(fault(keep_local({{.name = "box", .user = "me"}}, own)), "me@box"));
}

}  // namespace
}  // namespace distrun::launcher
