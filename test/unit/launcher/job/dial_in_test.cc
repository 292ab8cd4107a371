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

}  // namespace
}  // namespace distrun::launcher
