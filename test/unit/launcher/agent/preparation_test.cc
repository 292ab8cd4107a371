#include "launcher/agent/preparation.h"

#include <catch2/catch_test_macros.hpp>

#include "launcher/exit_codes.h"
#include "test/unit/launcher/sysroot.h"

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
  CHECK(std::get<Refused>(missing).may_come);
  CHECK_FALSE(preparation.ready());
  Prepare order = order_for({"sh"});
  order.protocol += 1;
  order.version = "99";
  const auto other = preparation.prepare(order, {}, {});
  REQUIRE(std::holds_alternative<Refused>(other));
  CHECK(std::get<Refused>(other).exit_code == exit_code::kUnusable);
  CHECK(std::get<Refused>(other).text.find("host h1 has distrun") == 0);
  CHECK_FALSE(std::get<Refused>(other).may_come);
}

TEST_CASE("a link that leads back to itself is named") {
  const test::Sysroot tree;
  tree.write("dir/x", "");
  std::filesystem::create_symlink("b", tree.path() + "a");
  std::filesystem::create_symlink("a", tree.path() + "b");
  for (const std::string& name : {tree.path() + "a", std::string("a")}) {
    Prepare order = order_for({name});
    order.common.environment["PATH"] = tree.path();
    const auto answer = Preparation().prepare(order, {}, {});
    REQUIRE(std::holds_alternative<Refused>(answer));
    CHECK(std::get<Refused>(answer).exit_code == exit_code::kNotExecutable);
    CHECK(std::get<Refused>(answer).text.find("is a symbolic link that leads back to itself") != std::string::npos);
  }
}

TEST_CASE("what is wrong with the folder and the program may pass, as before a late mount") {
  const test::Sysroot tree;
  const auto refused = [&tree](Prepare order, const std::string& script = {}) {
    if (order.common.cwd == "/") order.common.cwd = tree.path();
    order.common.script = script;
    const auto answer = Preparation().prepare(order, {}, {});
    REQUIRE(std::holds_alternative<Refused>(answer));
    return std::get<Refused>(answer);
  };
  Prepare elsewhere = order_for({"sh"});
  elsewhere.common.cwd = tree.path() + "gone";
  CHECK(refused(elsewhere).may_come);
  CHECK(refused(order_for({"./gone"})).may_come);
  CHECK(refused(order_for({"sh"}), "gone.py").may_come);
  tree.write("text", "x");
  CHECK(refused(order_for({"./text"})).may_come);
  CHECK(refused(order_for({tree.path()})).may_come);
  Preparation preparation;
  CHECK(std::holds_alternative<Refused>(preparation.prepare(order_for({"/no/such/program"}), {}, {})));
  CHECK(std::holds_alternative<Prepared>(preparation.prepare(order_for({"sh"}), {}, {})));
  CHECK(preparation.ready());
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
