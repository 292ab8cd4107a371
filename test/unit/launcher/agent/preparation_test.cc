#include "launcher/agent/preparation.h"

#include <catch2/catch_test_macros.hpp>

#include "launcher/exit_codes.h"

namespace distrun::launcher {
namespace {

Prepare order_for(std::vector<std::string> command) {
  Prepare out{.host = "h1", .job_id = "j", .ports = 2};
  out.common.command = std::move(command);
  out.common.cwd = "/";
  out.common.environment["PATH"] = "/usr/bin:/bin";
  return out;
}

TEST_CASE("a host that can run the program answers with its facts") {
  Preparation preparation;
  CHECK_FALSE(preparation.known());
  const auto answer = preparation.prepare(order_for({"sh"}), {}, {{"PMIX_RANK", "0"}});
  REQUIRE(std::holds_alternative<Prepared>(answer));
  CHECK(std::get<Prepared>(answer).facts.ports.size() == 2);
  CHECK(std::get<Prepared>(answer).facts.address == "127.0.0.1");
  CHECK(std::get<Prepared>(answer).facts.candidates.empty());
  CHECK(preparation.program().ends_with("/sh"));
  CHECK(preparation.job().common.environment.at("PMIX_RANK") == "0");
}

TEST_CASE("a host that is only asked says nothing of the program") {
  Prepare order = order_for({"no-such-program"});
  order.ask = true;
  Preparation preparation;
  const auto answer = preparation.prepare(order, {}, {});
  REQUIRE(std::holds_alternative<Prepared>(answer));
  CHECK(std::get<Prepared>(answer).facts.ports.empty());
}

TEST_CASE("a program that is missing, and a head of another version, are refused") {
  Preparation preparation;
  const auto missing = preparation.prepare(order_for({"no-such-program"}), {}, {});
  REQUIRE(std::holds_alternative<Refused>(missing));
  CHECK(std::get<Refused>(missing).exit_code == exit_code::kMissing);
  Prepare order = order_for({"sh"});
  order.protocol += 1;
  order.version = "99";
  const auto other = preparation.prepare(order, {}, {});
  REQUIRE(std::holds_alternative<Refused>(other));
  CHECK(std::get<Refused>(other).exit_code == exit_code::kUnusable);
  CHECK(std::get<Refused>(other).text.find("host h1 has distrun") == 0);
}

TEST_CASE("a host knows the addresses of localhost, and of no name that does not exist") {
  const Resolved answer = resolved({.names = {"localhost", "no-such-host.invalid"}});
  REQUIRE(answer.addresses.size() == 2);
  REQUIRE_FALSE(answer.addresses[0].empty());
  for (const std::string& address : answer.addresses[0]) CHECK((address == "127.0.0.1" || address == "::1"));
  CHECK(answer.addresses[1].empty());
}

TEST_CASE("probes need a listener, which ends when ranks start") {
  Preparation preparation;
  Probe probe{.host = 0};
  probe.key.assign(net::JobKey::kBytes, std::byte{1});
  CHECK_FALSE(preparation.probe(probe).ok());
  Prepare order = order_for({"sh"});
  order.probe = true;
  const auto answer = preparation.prepare(order, {}, {});
  REQUIRE(std::holds_alternative<Prepared>(answer));
  CHECK(std::get<Prepared>(answer).facts.probe_port != 0);
  CHECK_FALSE(preparation.progress(Clock::now()));
  REQUIRE(preparation.probe(probe).ok());
  CHECK_FALSE(preparation.probe(probe).ok());  // only once
  const auto probed = preparation.progress(Clock::now());
  REQUIRE(probed);  // there are no targets
  CHECK(probed->results.empty());
  preparation.begin({.no_grpc_proxy = "h1,h2"});
  CHECK(preparation.job().common.environment.at("no_grpc_proxy") == "h1,h2");
  CHECK_FALSE(preparation.probe(probe).ok());
}

}  // namespace
}  // namespace distrun::launcher
