#include "launcher/job/start/dial_in.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>

#include "launcher/agent/dial.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_connector.h"

namespace distrun::launcher {
namespace {

using Socket = std::unique_ptr<net::SecureSocket>;
using Answer = Result<Socket>;

TEST_CASE("of two agents of one name that come in the same turn one is refused with a text") {
  const net::JobKey key = net::JobKey::generate();
  auto door = DialIn::listen("127.0.0.1:0", key);
  REQUIRE(door.ok());
  const auto agent = [&] {
    auto fd = net::begin_connect(*net::parse_address(door->address()));
    REQUIRE(fd.ok());
    const net::Hello hello{.purpose = std::string(kDialPurpose) + "node1", .job_id = kDialJob};
    return net::SecureConnector(*std::move(fd), false, key, hello);
  };
  std::array<net::SecureConnector, 2> agents = {agent(), agent()};
  std::array<Answer, 2> answers = {Answer(Socket()), Answer(Socket())};
  const auto open = [&answers](std::size_t i) { return answers[i].ok() && *answers[i] == nullptr; };
  const TimePoint deadline = deadline_after(60);
  while ((open(0) || open(1)) && Clock::now() < deadline) {
    // Both agents go as far as they can before the head accepts again.
    for (std::size_t i = 0; i < agents.size(); ++i) {
      if (open(i)) answers[i] = agents[i].progress();
    }
    CHECK(door->wait(2, Clock::now()).code() == Errc::kTimeout);
  }
  REQUIRE(answers[0].ok() != answers[1].ok());
  const Answer& refused = answers[0].ok() ? answers[1] : answers[0];
  CHECK(refused.status().message().find("an agent of host node1 is here already") != std::string::npos);
  CHECK(door->hosts() == std::vector<std::string>{"node1"});
}

TEST_CASE("the name of an agent is checked like that of any host") {
  CHECK(fault_of_host_name("node-1.example").empty());
  CHECK(fault_of_host_name("a b") == "' ' cannot be part of a host name");
  CHECK(fault_of_host_name("-oProxyCommand").find("cannot start with '-'") != std::string::npos);
  CHECK(fault_of_host_name("a\x1b[2J").find("\\x1b") != std::string::npos);
  CHECK(fault_of_host_name("").find("missing") != std::string::npos);
  CHECK(fault_of_host_name(std::string(kLongestHost, 'a')).empty());
  CHECK_FALSE(fault_of_host_name(std::string(kLongestHost + 1, 'a')).empty());
}

TEST_CASE("an agent with a name that no host can have is refused, and named in the end") {
  const net::JobKey key = net::JobKey::generate();
  auto door = DialIn::listen("127.0.0.1:0", key);
  REQUIRE(door.ok());
  auto fd = net::begin_connect(*net::parse_address(door->address()));
  REQUIRE(fd.ok());
  net::SecureConnector agent(*std::move(fd), false, key, {.purpose = "agent:n\x1b[2J", .job_id = kDialJob});
  Answer answer = agent.progress();
  Status waited;
  for (const TimePoint deadline = deadline_after(60); answer.ok() && *answer == nullptr && Clock::now() < deadline;) {
    waited = door->wait(1, Clock::now());
    answer = agent.progress();
  }
  CHECK(answer.status().message().find("cannot be part of a host name") != std::string::npos);
  waited = door->wait(1, Clock::now());
  CHECK(waited.code() == Errc::kTimeout);
  CHECK(waited.message().find("0 of 1 agent has connected; 1 is missing; turned away: agent:n\\x1b[2J") == 0);
}

}  // namespace
}  // namespace distrun::launcher
