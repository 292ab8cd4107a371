// Login shells that do not start the agent: what the second agent shows, and when the first one is given up.
#include "launcher/job/start/login_check.h"

#include <fcntl.h>
#include <unistd.h>

#include "test/support/text.h"
#include "test/unit/launcher/job/job_parts.h"

namespace distrun::launcher {
namespace {

using distrun::test::has;

// Each start gives pipes. The test plays the login shell at their other ends.
class Shells final : public AgentSpawner {
 public:
  struct Shell {
    std::unique_ptr<FramePipe> pipe;
    Fd errors;
  };
  Result<AgentHandle> start(const std::string&, const std::string&) override {
    auto down = make_pipe();
    auto up = make_pipe();
    auto errors = make_pipe();
    REQUIRE((down.ok() && up.ok() && errors.ok()));
    started.push_back(
        {std::make_unique<FramePipe>(std::move(down->first), std::move(up->second)), std::move(errors->second)});
    ::fcntl(errors->first.get(), F_SETFL, O_NONBLOCK);
    return AgentHandle{.process = {},
                       .pipe = FramePipe(std::move(up->first), std::move(down->second)),
                       .errors = std::move(errors->first),
                       .remote = true};
  }
  [[nodiscard]] const SshOptions* ssh(const std::string&, const std::string&) const override { return &options; }
  std::vector<Shell> started;
  SshOptions options;
};

// A job whose only agent has not greeted. Times are seconds since its start. What the second agent does is seen at
// once, near second 0.
struct Waiting {
  Waiting() {
    agents[0].handle = *spawner.start("a", "");
    agents[0].handle.pipe.await(kAgentGreeting);
    agents[0].state = AgentLink::State::kAsked;
  }
  std::vector<LoginCheck::Fault> look(double after) {
    // Everything that the second agent has written is read first.
    Poller poller;
    check.watch(poller);
    REQUIRE(poller.wait(Clock::now()).ok());
    return check.look(begin + duration_of(after));
  }
  // The second agent is started.
  void look_until_second() {
    look(0);
    look(5);
    REQUIRE(spawner.started.size() == 2);
  }
  const TimePoint begin = Clock::now();
  Shells spawner;
  AgentLinks agents{assignment_of({"a"}), spawner, false, {}};
  LoginCheck check{agents, spawner};
};

TEST_CASE("a shell that reads input is found, and nothing is sent to it") {
  Waiting job;
  CHECK(job.look(0).empty());
  CHECK(job.look(4.9).empty());
  CHECK(job.spawner.started.size() == 1);
  CHECK(job.look(5).empty());
  REQUIRE(job.spawner.started.size() == 2);
  FramePipe& second = *job.spawner.started[1].pipe;
  CHECK(second.receive().empty());
  CHECK(second.closed());  // its input is at its end
  second.greet(kAgentGreeting);
  CHECK(job.look(1).empty());
  REQUIRE(job.check.deadline());
  const auto faults = job.look(60);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].host == 0);
  CHECK(has(faults[0].text, "waits for input"));
  CHECK(job.look(61).empty());
  CHECK(job.spawner.started.size() == 2);
  CHECK_FALSE(job.check.deadline());
}

TEST_CASE("a shell that another program has replaced is found") {
  Waiting job;
  job.look_until_second();
  job.spawner.started.pop_back();
  CHECK(job.look(1).empty());
  const auto faults = job.look(60);
  REQUIRE(faults.size() == 1);
  CHECK(has(faults[0].text, "start another shell or program"));
}

TEST_CASE("a second ssh that does not log in shows nothing about the first") {
  Waiting job;
  job.look_until_second();
  constexpr std::string_view kText = "kex_exchange_identification: read: Connection reset by peer\n";
  CHECK(::write(job.spawner.started[1].errors.get(), kText.data(), kText.size()) > 0);
  job.spawner.started.pop_back();
  CHECK(job.look(1).empty());
  CHECK(job.look(60).empty());
  CHECK_FALSE(job.check.deadline());
}

TEST_CASE("an agent that was only slow is not given up") {
  Waiting job;
  job.look_until_second();
  job.spawner.started[1].pipe->greet(kAgentGreeting);
  CHECK(job.look(1).empty());
  job.spawner.started[0].pipe->greet(kAgentGreeting);
  job.agents[0].handle.pipe.receive();
  CHECK(job.look(60).empty());
  CHECK_FALSE(job.check.deadline());
}

TEST_CASE("an agent whose output comes on standard error is given up at once") {
  Waiting job;
  job.agents[0].printed = "Welcome\n" + std::string(kAgentGreeting);
  const auto faults = job.look(0);
  REQUIRE(faults.size() == 1);
  CHECK(has(faults[0].text, "comes on standard error"));
  CHECK(job.look(60).empty());
}

TEST_CASE("agents that no login shell starts are not looked at") {
  Waiting job;
  job.agents[0].by_ssh = false;
  CHECK(job.look(0).empty());
  CHECK(job.look(60).empty());
  CHECK(job.spawner.started.size() == 1);
  CHECK_FALSE(job.check.deadline());
}

}  // namespace
}  // namespace distrun::launcher
