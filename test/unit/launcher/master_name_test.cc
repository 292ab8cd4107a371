#include "launcher/plan/network/master_name.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Names = std::vector<std::string>;

const std::string kAddress = "fd99::1";
const std::vector<Candidate> kOwn = {{"lo", "::1"}, {"eth0", kAddress}, {"eth0", "fe80::1"}, {"docker0", "172.17.0.1"}};

MasterName chosen(const ResolvedNames& on_h1, const ResolvedNames& on_h2, const Names& names = {"h1"}) {
  return choose_master_name(names, kAddress, kOwn,
                            {{.host = "h1", .is_own = true, .names = on_h1}, {.host = "h2", .names = on_h2}});
}

TEST_CASE("a name is needed for an IPv6 address, and a number is no name") {
  CHECK(names_of_host("10.0.0.1", "h1", "node1").empty());
  CHECK(names_of_host(kAddress, "h1", "node1") == Names{"h1", "node1"});
  CHECK(names_of_host(kAddress, "h1", "h1") == Names{"h1"});
  CHECK(names_of_host(kAddress, kAddress, "node1") == Names{"node1"});
  CHECK(names_of_host(kAddress, "10.0.0.1", "").empty());
}

TEST_CASE("MASTER_ADDR is the name that all hosts resolve to the address") {
  const MasterName both = chosen({{kAddress}}, {{kAddress}});
  CHECK(both.name == "h1");
  CHECK(both.reason == "MASTER_ADDR is h1, which all hosts resolve to fd99::1");
  // /etc/hosts often has the own name as a loopback address.
  CHECK(chosen({{"::1", "127.0.1.1"}}, {{kAddress}}).name == "h1");
  CHECK(chosen({{}, {kAddress}}, {{kAddress}, {kAddress}}, {"alias", "h1"}).name == "h1");
}

TEST_CASE("a name that leads elsewhere on one host does not do, and the reason says where") {
  const auto why = [](const ResolvedNames& on_h2) {
    const MasterName none = chosen({{kAddress}}, on_h2);
    CHECK(none.name.empty());
    return none.reason;
  };
  CHECK(why({{}}) ==
        "MASTER_ADDR is fd99::1; not h1, because h2 does not know that name. Write tcp://[$MASTER_ADDR]:$MASTER_PORT, "
        "with brackets");
  CHECK(why({}).find("h2 does not know that name") != std::string::npos);
  CHECK(why({{"10.99.0.1", kAddress}}).find("on h2 it means 10.99.0.1") != std::string::npos);
  CHECK(why({{"::1"}}).find("on h2 it means ::1") != std::string::npos);
  // Every host may have a bridge of that address.
  CHECK(why({{kAddress, "172.17.0.1"}}).find("on h2 it means 172.17.0.1") != std::string::npos);
  CHECK(chosen({{"10.99.0.7"}}, {{kAddress}}).reason.find("on h1 it means 10.99.0.7") != std::string::npos);
  CHECK(chosen({}, {}, {}).reason == "MASTER_ADDR is fd99::1. Write tcp://[$MASTER_ADDR]:$MASTER_PORT, with brackets");
}

}  // namespace
}  // namespace distrun::launcher
