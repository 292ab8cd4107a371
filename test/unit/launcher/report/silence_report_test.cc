#include "launcher/report/silence_report.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Names = std::vector<std::string>;

TEST_CASE("hosts whose names count up are folded") {
  CHECK(host_list(Names{"h2"}) == "h2");
  CHECK(host_list(Names{"h2", "h3"}) == "h2 and h3");
  CHECK(host_list(Names{"h6", "h7", "h8", "h9", "h10"}) == "h6 to h10");
  CHECK(host_list(Names{"h1", "h3", "h6", "h7", "h8"}) == "h1, h3 and h6 to h8");
  CHECK(host_list(Names{"n007.cluster2", "n008.cluster2", "n009.cluster2", "n010.cluster2"}) ==
        "n007.cluster2 to n010.cluster2");
  CHECK(host_list(Names{"n9", "n010", "n011"}) == "n9, n010 and n011");
  CHECK(host_list(Names{"10.0.0.4", "10.0.0.5", "10.0.0.6"}) == "10.0.0.4 to 10.0.0.6");
  CHECK(host_list(Names{"a1", "b2", "c3"}) == "a1, b2 and c3");
  CHECK(host_list(Names{"r1n1", "r1n2", "r1n3", "r2n1"}) == "r1n1 to r1n3 and r2n1");
  CHECK(host_list(Names{"alpha", "beta", "gamma"}) == "alpha, beta and gamma");
  CHECK(host_list(Names{"n99999999999999999999998", "n99999999999999999999999"}) ==
        "n99999999999999999999998 and n99999999999999999999999");
  Names many;
  for (int i = 0; i < 60; i += 2) many.push_back("h" + std::to_string(i));
  CHECK(host_list(many).ends_with("h28, h30 and 14 more"));
}

TEST_CASE("the user hears of silence, of its end, and of what is given up") {
  CHECK(silent_report({"h2"}, 4, milliseconds(3500), seconds(30)) ==
        "host h2 has been silent for 3.5 s; it is given up after 30 s (--host-timeout)");
  CHECK(silent_report({"h6", "h7", "h8"}, 10, milliseconds(3500), seconds(30)) ==
        "hosts h6 to h8 (3 of 10) have been silent for 3.5 s; they are given up after 30 s (--host-timeout)");
  CHECK(back_report({"h2"}, milliseconds(6200)) == "host h2 is back after 6 s");
  CHECK(back_report({"h2", "h3"}, milliseconds(6600)) == "hosts h2 and h3 are back after 7 s");
  CHECK(lost_report({"h2"}, 4, silence_text(seconds(30))) == "host h2 is lost: nothing has come from there for 30 s");
  CHECK(lost_report({"h6", "h7", "h8", "h9", "h10"}, 10, silence_text(seconds(30))) ==
        "hosts h6 to h10 are silent (5 of 10): nothing has come from there for 30 s");
}

TEST_CASE("where all others are silent, or there is no carrier, the own network is gone") {
  CHECK(judge_own_network(1, 1, true) == OwnNetwork::kWorks);  // either network may be gone
  CHECK(judge_own_network(1, 1, false) == OwnNetwork::kNoCarrier);
  CHECK(judge_own_network(1, 2, true) == OwnNetwork::kWorks);
  CHECK(judge_own_network(2, 2, true) == OwnNetwork::kAllSilent);
  CHECK(judge_own_network(5, 10, true) == OwnNetwork::kWorks);
  CHECK(judge_own_network(1, 9, false) == OwnNetwork::kNoCarrier);
  CHECK(own_network_report(OwnNetwork::kAllSilent, seconds(30)) ==
        "this machine's own network is gone: nothing has come from any other host for 30 s");
  CHECK(own_network_report(OwnNetwork::kNoCarrier, seconds(30)).starts_with("this machine's own network is gone: "));
}

}  // namespace
}  // namespace distrun::launcher
