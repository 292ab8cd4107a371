#include "launcher/job/start/dial_in.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>

#include "launcher/agent/dial.h"
#include "launcher/spawn/poller.h"
#include "runtime/net/bytes/socket.h"
#include "runtime/net/secure/secure_connector.h"

namespace distrun::launcher {
namespace {

using Socket = std::unique_ptr<net::SecureSocket>;
using Answer = Result<Socket>;

TEST_CASE("of two agents of one name that come in the same turn one is refused with a text") {
  const net::JobKey key = net::JobKey::generate();
  auto dial_in = DialIn::listen("127.0.0.1:0", key);
  REQUIRE(dial_in.ok());
  const auto agent = [&] {
    auto fd = net::begin_connect(*net::parse_address(dial_in->address()));
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
    CHECK(dial_in->wait(2, Clock::now()).code() == Errc::kTimeout);
  }
  REQUIRE(answers[0].ok() != answers[1].ok());
  const Answer& refused = answers[0].ok() ? answers[1] : answers[0];
  CHECK(refused.status().message().find("an agent of host node1 is here already") != std::string::npos);
  CHECK(dial_in->hosts() == std::vector<std::string>{"node1"});
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

TEST_CASE("an agent that comes when all have come is turned away, on both sides") {
  const net::JobKey key = net::JobKey::generate();
  auto dial_in = DialIn::listen("127.0.0.1:0", key);
  REQUIRE(dial_in.ok());
  const std::string address = dial_in->address();
  const auto come = [&](const std::string& host, const auto& head) {
    auto fd = net::begin_connect(*net::parse_address(address));
    REQUIRE(fd.ok());
    net::SecureConnector agent(*std::move(fd), false, key, {.purpose = kDialPurpose + host, .job_id = kDialJob});
    Answer answer = agent.progress();
    for (const TimePoint deadline = deadline_after(60); answer.ok() && *answer == nullptr && Clock::now() < deadline;) {
      head();
      answer = agent.progress();
    }
    return answer;
  };
  const Answer first = come("n1", [&] { static_cast<void>(dial_in->wait(1, Clock::now())); });
  REQUIRE(first.ok());
  REQUIRE(dial_in->wait(1, deadline_after(60)).ok());
  const auto spawner = dial_in->spawner();
  CHECK(spawner->start("n1", "").ok());
  Poller poller;
  const Answer late = come("n2", [&] {
    poller.clear();
    spawner->watch(poller);
    REQUIRE(poller.wait(deadline_after(0.01)).ok());
  });
  REQUIRE_FALSE(late.ok());
  CHECK(late.status().message().find("the agent of the job has come") != std::string::npos);
}

TEST_CASE("an agent has the options of distrun") {
  const auto given = [](const std::vector<std::string>& words) {
    std::map<std::string, std::string> out = {{"--timeout", "300"}};
    REQUIRE(read_dial_options(words, out).ok());
    return out;
  };
  const auto refused = [](const std::vector<std::string>& words) {
    std::map<std::string, std::string> out;
    return read_dial_options(words, out).message();
  };
  using Given = std::map<std::string, std::string>;
  const Given all = {{"--connect", "h:1"}, {"--key-file", "/k=1"}, {"--timeout", "1"}};
  CHECK(given({"--connect=h:1", "--key-file=/k=1", "--timeout=1"}) == all);
  CHECK(given({"--connect", "h:1", "--key_file", "/k=1", "--timeout=1"}) == all);
  CHECK(refused({"--conect=h:1"}) == "--conect=h:1 is not an option of distrun agent; did you mean --connect?");
  CHECK(refused({"--connect"}) == "--connect needs a value");
  CHECK(refused({"--connect="}).find("has an empty value") != std::string::npos);
  CHECK(refused({"--timeout=1", "--timeout", "2"}).find("given twice") != std::string::npos);
  for (const char* word : {"--connect=127.0.0.1:0", "--connect=[::1]:0"}) {
    CHECK(dial_main({word, "--key-file=/k", "--timeout=1"}, {}) == 64);
  }
}

TEST_CASE("an agent with a name that no host can have is refused, and named in the end") {
  const net::JobKey key = net::JobKey::generate();
  auto dial_in = DialIn::listen("127.0.0.1:0", key);
  REQUIRE(dial_in.ok());
  auto fd = net::begin_connect(*net::parse_address(dial_in->address()));
  REQUIRE(fd.ok());
  net::SecureConnector agent(*std::move(fd), false, key, {.purpose = "agent:n\x1b[2J", .job_id = kDialJob});
  Answer answer = agent.progress();
  Status waited;
  for (const TimePoint deadline = deadline_after(60); answer.ok() && *answer == nullptr && Clock::now() < deadline;) {
    waited = dial_in->wait(1, Clock::now());
    answer = agent.progress();
  }
  CHECK(answer.status().message().find("cannot be part of a host name") != std::string::npos);
  waited = dial_in->wait(1, Clock::now());
  CHECK(waited.code() == Errc::kTimeout);
  CHECK(waited.message().find("0 of 1 agent has connected; 1 is missing; turned away: agent:n\\x1b[2J") == 0);
}

}  // namespace
}  // namespace distrun::launcher
