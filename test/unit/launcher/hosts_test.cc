#include "launcher/plan/hosts/hosts.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/hosts/text.h"
#include "launcher/plan/place/assign.h"
#include "test/support/text.h"

namespace distrun::launcher {
namespace {

std::string fault(const Result<std::vector<HostSlots>>& result) {
  REQUIRE_FALSE(result.ok());
  return result.status().message();
}

using Hosts = std::vector<HostSlots>;

Hosts hosts_of(std::string_view text) {
  const auto hosts = parse_hosts(text);
  INFO((hosts.ok() ? "" : hosts.status().message()));
  REQUIRE(hosts.ok());
  return *hosts;
}

Hosts file_of(std::string_view text) {
  const auto hosts = parse_hostfile(*unix_text(text, "f"), "hosts");
  INFO((hosts.ok() ? "" : hosts.status().message()));
  REQUIRE(hosts.ok());
  return *hosts;
}

using distrun::test::has;

TEST_CASE("-H names hosts and slots") {
  const auto hosts = parse_hosts("node-1:4,me@n2:2,[::1]:3,plain");
  REQUIRE(hosts.ok());
  REQUIRE(hosts->size() == 4);
  CHECK((*hosts)[0] == HostSlots{.name = "node-1", .slots = 4});
  CHECK((*hosts)[1] == HostSlots{.name = "n2", .user = "me", .slots = 2});
  CHECK((*hosts)[2] == HostSlots{.name = "::1", .slots = 3});
  CHECK((*hosts)[3] == HostSlots{.name = "plain"});
}

TEST_CASE("-H takes hostlists") {
  CHECK(hosts_of("me@node[01-02,7]:8,x") == Hosts{{.name = "node01", .user = "me", .slots = 8},
                                                  {.name = "node02", .user = "me", .slots = 8},
                                                  {.name = "node7", .user = "me", .slots = 8},
                                                  {.name = "x"}});
  CHECK(hosts_of("[1-2]:3") == Hosts{{.name = "1", .slots = 3}, {.name = "2", .slots = 3}});
  CHECK(hosts_of("n[1-2]-ib:2,n1-ib:1") == Hosts{{.name = "n1-ib", .slots = 3}, {.name = "n2-ib", .slots = 2}});
  CHECK(hosts_of("n[1-100000]").size() == 100000);
  CHECK(has(fault(parse_hosts("m,n[1-100000]")), "column 3: there are more than 100000 hosts"));
  CHECK(has(fault(parse_hosts("n[1-2:4")), "column 2: this '[' has no matching ']'"));
  std::string many;
  for (int i = 0; i < 11; ++i) many += "n[1-100000],";
  CHECK(has(fault(parse_hosts(many + "m")), "more than 1048576 slots"));
}

TEST_CASE("-H takes IPv6 addresses") {
  CHECK(hosts_of("::1") == Hosts{{.name = "::1"}});
  CHECK(hosts_of("fe80::1,[fe80::2],me@[fe80::3]:4") ==
        Hosts{{.name = "fe80::1"}, {.name = "fe80::2"}, {.name = "fe80::3", .user = "me", .slots = 4}});
  CHECK(hosts_of("fe80::1%eth0,[fe80::1%eth1]:2") ==
        Hosts{{.name = "fe80::1%eth0"}, {.name = "fe80::1%eth1", .slots = 2}});
  CHECK(hosts_of("2001:db8:0:0:0:0:0:1") == Hosts{{.name = "2001:db8:0:0:0:0:0:1"}});
  CHECK(hosts_of("::ffff:10.0.0.1") == Hosts{{.name = "::ffff:10.0.0.1"}});
  CHECK(has(fault(parse_hosts("::1:4")), "Write [::1:4] or [::1]:4"));
  CHECK(has(fault(parse_hosts("[::1:4")), "no matching ']'"));
  CHECK(has(fault(parse_hosts("[::1]4")), "column 6: expected ':'"));
  CHECK(has(fault(parse_hosts("[::1]:")), "column 7: '' is not a number of slots"));
  CHECK(has(fault(parse_hosts("[:::1]")), "':::1' is not an IPv6 address"));
  CHECK(has(fault(parse_hosts("a:2:3")), "'a:2:3' is neither host:slots nor an IPv6 address"));
  for (const std::string zone : {"", "-x", "a;b", "a b", "a/b"}) {
    CHECK(has(fault(parse_hosts("[fe80::1%" + zone + "]")), "is not an IPv6 address"));
  }
  using namespace std::string_view_literals;
  CHECK(has(fault(parse_hosts("[::1\0;id]"sv)), "'::1\\x00;id' is not an IPv6 address"));
}

TEST_CASE("a host is written as -H takes it") {
  CHECK(spelt({.name = "n1"}) == "n1");
  CHECK(spelt({.name = "fe80::1", .user = "me"}) == "me@[fe80::1]");
}

TEST_CASE("a list is written for -H as short as its order allows") {
  const auto again = [](std::string_view text) { return as_option(hosts_of(text)); };
  CHECK(again("n1:4,n2:4,n3:2,me@n4:2,me@n5:2,x") == "n[1-2]:4,n3:2,me@n[4-5]:2,x");
  CHECK(again("[fe80::1]:2,[fe80::2]:2,n1:2") == "[fe80::1]:2,[fe80::2]:2,n1:2");
  CHECK(again("a:1,b:1") == "a:1,b:1");
  CHECK(as_option({}).empty());
}

TEST_CASE("a host that is named twice adds its slots") {
  CHECK(hosts_of("a:4,b:1,a:2") == Hosts{{.name = "a", .slots = 6}, {.name = "b", .slots = 1}});
  CHECK(hosts_of("a,b,a") == Hosts{{.name = "a", .slots = 2}, {.name = "b", .slots = 1}});
  CHECK(hosts_of("a,b:2,a:3,c") == Hosts{{.name = "a", .slots = 4}, {.name = "b", .slots = 2}, {.name = "c"}});
  CHECK(has(fault(parse_hosts("a:1,me@a:1")), "column 8: a was named before with another user"));
  CHECK(has(fault(parse_hosts("a:1048576,a:1")), "more than 1048576 slots"));
}

TEST_CASE("a fault in -H has its column and a caret below it") {
  const std::string text = fault(parse_hosts("localhost:x"));
  CHECK(has(text, "column 11"));
  CHECK(has(text, "'x' is not a number of slots"));
  CHECK(text.ends_with("\n  localhost:x\n            ^"));
  CHECK(has(fault(parse_hosts("a:2,,b")), "column 5"));
  CHECK(has(fault(parse_hosts("a:2,")), "column 5"));
  CHECK(has(fault(parse_hosts("")), "host name is missing"));
  CHECK(has(fault(parse_hosts("a:-1")), "not a number of slots"));
  for (const char* list : {"a:1 b:1", "a b", "a,b c", "a:1,\tb:1"})
    CHECK(has(fault(parse_hosts(list)), "separate the hosts by commas without blanks, as in -H host1:4,host2:4"));
  CHECK(has(fault(parse_hosts("a:99999999999999")), "not a number of slots"));
}

TEST_CASE("no name in -H can be an option, a user's option or a shell's text") {
  CHECK(has(fault(parse_hosts("-oProxyCommand=x")), "column 1: a host name cannot start with '-'"));
  CHECK(has(fault(parse_hosts("-x@a")), "column 1: "));
  CHECK(has(fault(parse_hosts("me@-oProxyCommand=x")), "column 4: a host name cannot start with '-'"));
  CHECK(has(fault(parse_hosts("@a")), "a user name is missing"));
  CHECK(has(fault(parse_hosts("a@b@")), "column 5: a host name is missing"));
  CHECK(has(fault(parse_hosts("a b:1")), "column 2"));
  CHECK(has(fault(parse_hosts("$(id):1")), "column 1: '$' cannot be part of a host name"));
  for (const char c : std::string_view(" ;$`'\"\\|&<>(){}*?~!#%/=^\n\r\t\0\x1b\x7f", 28)) {
    CHECK_FALSE(parse_hosts(std::string("a") + c + "b:1").ok());
    const bool of_users = c == '\\' || c == '/' || c == '=';
    CHECK(parse_hosts(std::string("u") + c + "v@a:1").ok() == of_users);
  }
}

TEST_CASE("a user is taken as ssh takes it, and the host follows the last @") {
  CHECK(hosts_of("me@corp.example@node1:1") == Hosts{{.name = "node1", .user = "me@corp.example", .slots = 1}});
  CHECK(hosts_of("CORP\\me@n[1-2]") == Hosts{{.name = "n1", .user = "CORP\\me"}, {.name = "n2", .user = "CORP\\me"}});
  CHECK(hosts_of("CORP+me@realm@[fe80::1]:2") == Hosts{{.name = "fe80::1", .user = "CORP+me@realm", .slots = 2}});
  CHECK(file_of("n1:1 user=CORP\\me\nme@corp@n2\n") ==
        Hosts{{.name = "n1", .user = "CORP\\me", .slots = 1}, {.name = "n2", .user = "me@corp"}});
  CHECK(spelt(hosts_of("me@corp@n1").front()) == "me@corp@n1");
  CHECK(has(fault(parse_hosts("me\\@n1")), "column 3: a user name cannot end with '\\'"));
  CHECK(has(fault(parse_hosts("@corp\\me;id@n1")), "column 9: ';' cannot be part of a user name"));
  CHECK(has(fault(parse_hostfile("n1 user=\n", "f")), "a user name is missing"));
}

TEST_CASE("a host with 0 slots is left out, and a sentence names it") {
  Hosts hosts = hosts_of("a:2,b:0,me@c:0");
  CHECK(leave_out_without_slots(hosts) == "b,me@c are left out: they have 0 slots");
  CHECK(hosts == Hosts{{.name = "a", .slots = 2}});
  CHECK(leave_out_without_slots(hosts).empty());
  hosts = file_of("h1 slots=2\nh2 slots=0 max_slots=4\nh3\n");
  CHECK(leave_out_without_slots(hosts) == "h2 is left out: it has 0 slots");
  CHECK(hosts == Hosts{{.name = "h1", .slots = 2}, {.name = "h3"}});
  CHECK(hosts_of("a:0,a:2,a") == Hosts{{.name = "a", .slots = 3}});
  CHECK(has(fault(parse_hostfile("h1 max_slots=0\n", "f")), "To leave this host out, write slots=0"));
}

TEST_CASE("JSON in place of a host list is refused with the right form") {
  const auto of_list = [](std::string_view text) { return fault(parse_hosts(text)); };
  for (const char* text : {R"([{"ssh": "h1"}])", R"(["h1", "h2"])", "['h1']", R"({"h1": 2})", " [ ]"}) {
    INFO(text);
    CHECK(has(of_list(text), "this is JSON. Write hosts and slots, as in -H host1:4,host2:4"));
  }
  const std::string text = fault(parse_hostfile("\n[\n  {\"ssh\": \"h1\"}\n]\n", "f"));
  CHECK(text == "f:2:1: this is JSON. Write one host on each line, as in: host1 slots=4\n  [\n  ^");
  CHECK(hosts_of("[1-2],[3]").size() == 3);
  CHECK(file_of("[fe80::1]:2\n[1-2]\n").size() == 3);
}

TEST_CASE("a character of a document in a host list is shown whole") {
  CHECK(has(fault(parse_hosts("h1:1,\u201ch2")), "column 6: '\u201c' cannot be part of a host name"));
  CHECK(has(fault(parse_hosts("n\u20131@h2")), "'\u2013' cannot be part of a user name"));
  CHECK(has(fault(parse_hostfile("h1\u00a0slots=2\n", "f")), "f:1:3: '\u00a0' cannot be part of a host name"));
}

TEST_CASE("Open MPI's, Hydra's, DeepSpeed's and Horovod's hostfiles") {
  CHECK(file_of("# cluster\r\n\r\nh1 slots=4 max_slots=8 # big\r\nh2:2\nh3\n") ==
        Hosts{{.name = "h1", .slots = 4, .max_slots = 8}, {.name = "h2", .slots = 2}, {.name = "h3"}});
  CHECK(file_of("h1 slots = 4  max-slots= 8\n\th2\tcpu =2\nh3 count=1 slots_max=3") ==
        Hosts{{.name = "h1", .slots = 4, .max_slots = 8},
              {.name = "h2", .slots = 2},
              {.name = "h3", .slots = 1, .max_slots = 3}});
  CHECK(file_of("h1:2 binding=user:0,1\nh2:3 user=me\nh3 username=you slots=1\n") ==
        Hosts{{.name = "h1", .slots = 2},
              {.name = "h2", .user = "me", .slots = 3},
              {.name = "h3", .user = "you", .slots = 1}});
  CHECK(file_of("worker-0 slots=8\nworker-1 slots=8\n") ==
        Hosts{{.name = "worker-0", .slots = 8}, {.name = "worker-1", .slots = 8}});
  CHECK(file_of("\xef\xbb\xbfh1 slots=4\n[fe80::1]:2\nfe80::2 slots=3\nn[1-2] slots=4") ==
        Hosts{{.name = "h1", .slots = 4},
              {.name = "fe80::1", .slots = 2},
              {.name = "fe80::2", .slots = 3},
              {.name = "n1", .slots = 4},
              {.name = "n2", .slots = 4}});
}

TEST_CASE("PBS's nodefile: one slot per line") {
  CHECK(file_of("h1\nh1\nh2\nh1\n") == Hosts{{.name = "h1", .slots = 3}, {.name = "h2", .slots = 1}});
  // Every host appears once: this is a plain list, and the number of slots is unknown.
  CHECK(file_of("h1\nh2\n") == Hosts{{.name = "h1"}, {.name = "h2"}});
}

TEST_CASE("a fault in a hostfile has file, line and column, and the line with its place marked") {
  const std::string text = fault(parse_hostfile("h1 slots=4\nh2 slots=no # two\n", "my.hosts"));
  CHECK(text ==
        "my.hosts:2:10: 'no' is not a number of slots. Write a whole number, as in host:4\n"
        "  h2 slots=no # two\n           ^");
  CHECK(has(fault(parse_hostfile("h1 cores=4\n", "f")), "f:1:4: 'cores' is not valid"));
  CHECK(has(fault(parse_hostfile("h1 slots=4 max_slots=2\n", "f")), "f:1:1: h1 has more slots than its max_slots"));
  CHECK(has(fault(parse_hostfile("h1 slots=2 max_slots=3\nh1 slots=2\n", "f")), "f:2:1: h1 has more slots"));
  CHECK(has(fault(parse_hostfile("h1 slots\n", "f")), "f:1:9: '' is not a number of slots"));
  CHECK(has(fault(parse_hostfile("h1 slots=\n", "f")), "f:1:10: '' is not a number of slots"));
  CHECK(has(fault(parse_hostfile("h1 =4\n", "f")), "f:1:4: '' is not valid"));
  CHECK(has(fault(parse_hostfile("h1:2 slots=2\n", "f")), "f:1:6: the slots of this host are given twice"));
  CHECK(has(fault(parse_hostfile("me@h1 user=you\n", "f")), "f:1:7: the user of this host is given twice"));
  CHECK(has(fault(parse_hostfile("h1 user=-x\n", "f")), "f:1:9: "));
  CHECK(has(fault(parse_hostfile("  -h1\n", "f")), "f:1:3: a host name cannot start with '-'"));
  CHECK(has(fault(parse_hostfile("h1\nn[3-1]\n", "f")), "f:2:3: the first number of this range is the larger one"));
  CHECK(has(fault(parse_hostfile("h1;id\n", "f")), "f:1:3: ';' cannot be part of a host name"));
  CHECK(has(fault(parse_hostfile("\n# nothing\n", "f")), "names no host"));
}

TEST_CASE("ranks fill one host after the other") {
  const auto plan =
      assign({.hosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 3}}, .placement = {.ranks = 4}});
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
  const auto plan =
      assign({.hosts = {{.name = "a", .slots = 4}, {.name = "b", .slots = 4}}, .placement = {.ranks = 2}});
  REQUIRE(plan.ok());
  CHECK(plan->hosts == std::vector<std::string>{"a"});
}

TEST_CASE("a host that was named and gets no rank is told") {
  AssignRequest request{.hosts = hosts_of("a:8,b:8"), .named = true, .placement = {.ranks = 2}};
  CHECK(assign(request)->hints ==
        std::vector<std::string>{"b gets no rank: ranks fill one host after the other, and a has 8 "
                                 "slots. To spread them, use --nproc-per-node 1"});
  request.hosts = hosts_of("a:8,b:8,c:1");
  request.placement.ranks = 9;
  CHECK(assign(request)->hints ==
        std::vector<std::string>{"c gets no rank: ranks fill one host after the other, and a,b "
                                 "have 16 slots"});
  request.hosts = hosts_of("a:8,b:8,c:8,d:8");  // two ranks on each host would leave none for d
  request.placement.ranks = 5;
  CHECK(assign(request)->hints ==
        std::vector<std::string>{"b,c,d get no rank: ranks fill one host after the other, and a has 8 "
                                 "slots"});
  for (const AssignRequest& quiet :
       {AssignRequest{.hosts = hosts_of("a:8,b:8"), .placement = {.ranks = 2}},
        AssignRequest{.hosts = hosts_of("a:8,b:8,c:8"), .named = true, .placement = {.ranks = 2, .ranks_per_host = 1}},
        AssignRequest{.hosts = hosts_of("a:1,b:1,c:1"), .named = true, .placement = {.ranks = 2}},
        AssignRequest{.hosts = hosts_of("a:1,b:1"), .named = true}}) {
    CHECK(assign(quiet)->hints.empty());
  }
}

TEST_CASE("more ranks than slots need --oversubscribe") {
  const AssignRequest request{.hosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 2}},
                              .placement = {.ranks = 6}};
  const auto refused = assign(request);
  REQUIRE_FALSE(refused.ok());
  CHECK(has(refused.status().message(), "6 ranks do not fit into 4 slots"));
  const AssignRequest none{.hosts = {{.name = "a", .slots = 0}}, .placement = {.ranks = 1}};
  CHECK(has(assign(none).status().message(), "1 rank does not fit into 0 slots"));
  CHECK(has(refused.status().message(), "-H a:3,b:3"));
  CHECK(has(refused.status().message(), "--oversubscribe"));
  AssignRequest allowed = request;
  allowed.placement.oversubscribe = true;
  const auto plan = assign(allowed);
  REQUIRE(plan.ok());
  CHECK(plan->oversubscribed);
  CHECK(plan->places[3].host == 1);
  CHECK(plan->places[5].local_size == 3);
}

TEST_CASE("ranks that do not fit are an error with a table and the cure") {
  CHECK(assign({.hosts = hosts_of("node[01-03]:2,login"), .placement = {.ranks = 9}, .default_slots = 1})
            .status()
            .message() ==
        "9 ranks do not fit into 7 slots:\n"
        "  host         slots\n"
        "  node[01-03]  2 each\n"
        "  login        1\n"
        "  total        7\n"
        "Give more slots (-H node[01-03]:3,login:3), use fewer ranks (-np 7), or add --oversubscribe to run several "
        "ranks on one slot.");
  const auto too_many =
      assign({.hosts = hosts_of("a:1"), .placement = {.ranks = 2}, .more_slots = "ask Slurm for more (--ntasks)"});
  CHECK(has(too_many.status().message(), "\nAsk Slurm for more (--ntasks), use fewer ranks (-np 1), or add --oversub"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += (i > 0 ? ",h" : "h") + std::to_string(i) + ":" + std::to_string(1 + i % 2);
  const std::string text = assign({.hosts = hosts_of(many), .placement = {.ranks = 2000}}).status().message();
  CHECK(has(text, "... and 980 hosts"));
  CHECK(has(text, "total              1500\n"));
  CHECK(text.size() < 1500);
  CHECK(has(assign({.hosts = hosts_of("n[1-100000]:1000")}).status().message(), "100000000 ranks are too many"));
}

TEST_CASE("the same number of ranks on each host") {
  const auto counts = [](const AssignRequest& request) {
    const auto plan = assign(request);
    INFO((plan.ok() ? "" : plan.status().message()));
    REQUIRE(plan.ok());
    std::vector<int> out(plan->hosts.size());
    for (const Place& place : plan->places) ++out[static_cast<std::size_t>(place.host)];
    return out;
  };
  using Counts = std::vector<int>;
  CHECK(counts({.placement = {.ranks_per_host = 3}}) == Counts{3});
  CHECK(counts({.hosts = hosts_of("a,b"), .placement = {.ranks_per_host = 3}}) == Counts{3, 3});
  CHECK(counts({.hosts = hosts_of("a:4,b:4,c:1"), .placement = {.ranks = 4, .ranks_per_host = 2}}) == Counts{2, 2});
  CHECK(counts({.hosts = hosts_of("a:4,b:4"), .placement = {.ranks = 3, .ranks_per_host = 2}}) == Counts{2, 1});
  CHECK(counts({.hosts = hosts_of("a:1,b:1"), .placement = {.ranks_per_host = 2, .oversubscribe = true}}) ==
        Counts{2, 2});
  CHECK(has(assign({.hosts = hosts_of("a:4,b:1"), .placement = {.ranks_per_host = 2}}).status().message(),
            "2 ranks on each host, as --nproc-per-node asks, do not fit:\n  host   slots\n  a      4\n  b      1\n"));
  CHECK(
      has(assign({.hosts = hosts_of("a:2,b:2"), .placement = {.ranks = 5, .ranks_per_host = 2}}).status().message(),
          "5 ranks with 2 on each host need 3 hosts, and the job has 2. Name more hosts, or use fewer ranks (-np 4)."));
  CHECK(has(assign({.placement = {.ranks = 3, .ranks_per_host = 2}}).status().message(),
            "need 2 hosts, and the job has 1."));
}

TEST_CASE("--nproc-per-node replaces slots that nobody asked for, and no others") {
  Hosts hosts = {{.name = "a", .slots = 1, .counted = true}, {.name = "b", .without_gpus = 1}};
  const auto ranks = [&hosts](const PlacementOptions& placement) {
    const auto plan = assign({.hosts = hosts, .placement = placement, .more_slots = "ask PBS for more"});
    return plan.ok() ? std::to_string(plan->places.size()) : plan.status().message();
  };
  CHECK(ranks({.ranks_per_host = 4}) == "8");
  CHECK(ranks({.ranks = 6, .ranks_per_host = 4}) == "6");
  CHECK(has(ranks({.ranks = 8}), "\nGive each host its ranks with --nproc-per-node 4, ask PBS for more, use fewer"));
  hosts[1] = {.name = "b", .slots = 1};
  CHECK(has(ranks({.ranks_per_host = 4}), "4 ranks on each host, as --nproc-per-node asks, do not fit"));
  CHECK(has(ranks({.ranks = 8}), "\nAsk PBS for more, use fewer"));
  hosts[1] = {.name = "b", .max_slots = 2, .counted = true};
  CHECK(has(ranks({.ranks_per_host = 4}), "do not fit"));
}

TEST_CASE("max_slots holds even with --oversubscribe") {
  const AssignRequest request{.hosts = {{.name = "a", .slots = 1, .max_slots = 2}, {.name = "b", .slots = 1}},
                              .placement = {.ranks = 5, .oversubscribe = true}};
  const auto plan = assign(request);
  REQUIRE(plan.ok());
  CHECK(plan->places[1].host == 0);
  CHECK(plan->places[2].host == 1);
  AssignRequest too_many = request;
  too_many.hosts[1].max_slots = 2;
  REQUIRE_FALSE(assign(too_many).ok());
}

TEST_CASE("without hosts there are as many slots as ranks") {
  const auto plan = assign({.placement = {.ranks = 3}});
  REQUIRE(plan.ok());
  CHECK(plan->hosts == std::vector<std::string>{"localhost"});
  CHECK(plan->places.size() == 3);
  REQUIRE_FALSE(assign({}).ok());
}

TEST_CASE("all names of this machine are one host") {
  const std::vector<std::string> own = {"localhost", "127.0.0.1", "box"};
  CHECK(merge_own_names({{.name = "box", .slots = 2}, {.name = "n7", .slots = 4}, {.name = "127.0.0.1", .slots = 1}},
                        own) == Hosts{{.name = "box", .slots = 3}, {.name = "n7", .slots = 4}});
  CHECK(merge_own_names({{.name = "box"}, {.name = "localhost"}}, own) == Hosts{{.name = "box"}});
  CHECK(merge_own_names({{.name = "box"}, {.name = "box", .user = "me"}}, own).size() == 2);
}

TEST_CASE("what a machine is called") {
  const auto has_name = [](const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const Hosts full = {{.name = "n1.cluster"}, {.name = "n10.cluster"}};
  const auto here = [](const std::string&) { return true; };
  CHECK(has_name(names_of_host("n1", full, here), "n1"));
  CHECK(has_name(names_of_host("n1", full, here), "n1.cluster"));
  CHECK_FALSE(has_name(names_of_host("n1", full, here), "n10.cluster"));
  CHECK_FALSE(has_name(names_of_host("n1", {{.name = "n1.a"}, {.name = "n1.b"}}, here), "n1.a"));
  CHECK(has_name(names_of_host("n1.a", {}, here), "n1"));
  CHECK_FALSE(has_name(names_of_host("n1.a", {{.name = "n1.b"}}, here), "n1.b"));
  CHECK_FALSE(has_name(names_of_host("localhost", {{.name = "localhost.b"}}, here), "localhost.b"));
  std::vector<std::string> asked;
  const auto elsewhere = [&asked](const std::string& host) {
    asked.push_back(host);
    return false;
  };
  CHECK_FALSE(has_name(names_of_host("n1", full, elsewhere), "n1.cluster"));  // a name of another site
  CHECK(has_name(names_of_host("n1", full, elsewhere), "n1"));
  CHECK(asked == std::vector<std::string>{"n1.cluster", "n1.cluster"});
}

TEST_CASE("hosts without slots get those of their own") {
  const Topology two_cores{.cpus = {{.id = 0, .core = 0}, {.id = 1, .core = 1}}};
  Topology three_gpus = two_cores;
  three_gpus.gpus.resize(3);
  std::vector<HostSlots> hosts = {
      {.name = "n1"}, {.name = "big", .user = "me"}, {.name = "said", .slots = 7}, {.name = "n2"}, {.name = "odd"}};
  const auto reasons = fill_slots(hosts, {two_cores, three_gpus, two_cores, two_cores, Topology{}}, {});
  const auto slots = [&](std::size_t i) { return hosts[i].slots.value_or(0); };
  CHECK(slots(0) == 2);
  CHECK(slots(1) == 3);
  CHECK(slots(2) == 7);
  CHECK(slots(3) == 2);
  CHECK(slots(4) == 1);
  REQUIRE(reasons.size() == 3);
  CHECK(reasons[1] == "odd has 1 slot: one for each core; it has no GPUs");
  CHECK(reasons[2] == "n[1-2] have 2 slots each: one for each core; it has no GPUs");
  CHECK(reasons[0] == "me@big has 3 slots: one for each GPU");
  CHECK(own_slots(three_gpus, {.gpus_per_rank = 2}).count == 1);
  three_gpus.visible_devices = "2,0";
  CHECK(own_slots(three_gpus, {}).count == 2);
  three_gpus.visible_devices = "";
  CHECK(own_slots(three_gpus, {}).why == "one for each core; it has no GPUs");
}

TEST_CASE("a host whose GPUs the allocation does not tell has one slot for each, or what it was to have without any") {
  Topology four_gpus;
  four_gpus.gpus.resize(4);
  std::vector<HostSlots> hosts = {{.name = "gpu", .without_gpus = 1}, {.name = "cpu", .without_gpus = 1}};
  const auto reasons = fill_slots(hosts, {four_gpus, Topology{}}, {});
  CHECK(hosts[0] == HostSlots{.name = "gpu", .slots = 4, .without_gpus = 1, .counted = true});
  CHECK(hosts[1].slots == 1);
  CHECK(std::find(reasons.begin(), reasons.end(), "cpu has 1 slot: as the allocation says; it has no GPUs") !=
        reasons.end());
}

TEST_CASE("where nobody is asked for GPUs a host has what it was to have without any") {
  std::vector<HostSlots> hosts = {{.name = "said", .slots = 7},
                                  {.name = "told", .without_gpus = 2},
                                  {.name = "full", .max_slots = 3, .without_gpus = 4}};
  CHECK(count_no_gpus(hosts));
  CHECK(hosts[0].slots == 7);
  CHECK(hosts[1].slots == 2);
  CHECK(hosts[2].slots == 3);
  hosts = {{.name = "silent"}};
  CHECK_FALSE(count_no_gpus(hosts));
  CHECK_FALSE(hosts[0].slots);
}

TEST_CASE("a host without slots has at most its max_slots") {
  Topology eight_gpus;
  eight_gpus.gpus.resize(8);
  std::vector<HostSlots> hosts = {{.name = "n1", .max_slots = 4}, {.name = "n2", .max_slots = 9}};
  const auto reasons = fill_slots(hosts, {eight_gpus, eight_gpus}, {});
  CHECK(hosts[0].slots == 4);
  CHECK(hosts[1].slots == 8);
  CHECK(std::find(reasons.begin(), reasons.end(), "n1 has 4 slots: its max_slots") != reasons.end());
  const AssignRequest here{.hosts = {{.name = "n1", .max_slots = 4}}, .default_slots = 8};
  CHECK(assign(here)->places.size() == 4);
  CHECK_FALSE(assign({.hosts = here.hosts, .placement = {.ranks_per_host = 5}})->places.size() == 5);
}

TEST_CASE("a machine under several names is named with all of them, once") {
  CHECK(machines_named_twice({{"h1", "a"}, {"h2", "b"}, {"h3", ""}, {"h4", ""}}).empty());
  const auto found = machines_named_twice({{"h1", "a"}, {"h2", "b"}, {"me@h1", "a"}, {"web", "b"}, {"www", "b"}});
  REQUIRE(found.size() == 2);
  CHECK(found[0].starts_with("h1, me@h1 are the same machine"));
  CHECK(found[1].starts_with("h2, web, www are the same machine"));
  CHECK(found[1].find("-H h2:4. ") != std::string::npos);
}

}  // namespace
}  // namespace distrun::launcher
