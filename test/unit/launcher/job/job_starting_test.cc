// How a job starts. The test plays the agents.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "launcher/exit_codes.h"
#include "launcher/job/start/job_start.h"
#include "test/unit/launcher/job/job_parts.h"

namespace distrun::launcher {
namespace {

using Outcome = JobStart::Outcome;
using State = AgentLink::State;

const std::vector<std::string> kBothHosts = {"a", "b"};

bool accepted(const Result<bool>& result) { return result.ok() && *result; }
bool unknown(const Result<bool>& result) { return result.ok() && !*result; }

struct Starting {
  explicit Starting(JobConfig asked) : config(std::move(asked)) {}
  static JobConfig config_of(const std::vector<std::string>& hosts) {
    JobConfig out;
    out.plan.assignment = assignment_of(hosts);
    out.plan.options.frameworks.tf_config = false;
    out.plan.job_id = "j";
    return out;
  }
  // The head hears that the agents are there.
  void hear() {
    for (const auto& agent : agents.all()) agent->handle.pipe.receive();
  }
  void answer(std::size_t host, const std::string& machine) {
    HostFacts facts{.machine = machine, .ports = {1, 2, 3, 4}, .address = "127.0.0.1"};
    CHECK(accepted(start.on(agents[host], frame_of(FromAgent::kPrepared, Prepared{.facts = facts}))));
  }
  const JobConfig config;
  std::vector<std::string> said;
  AgentLinks::Print print = [this](const std::string& text) { said.push_back(text); };
  FakeSpawner spawner;
  const Log log{"error"};
  AgentLinks agents{config.plan.assignment, spawner, false, print};
  JobStart start{config, net::JobKey::generate(), agents, spawner, log, print};
};

TEST_CASE("ranks can start when every host has answered") {
  Starting job(Starting::config_of(kBothHosts));
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  for (const std::string& host : kBothHosts) CHECK(job.spawner.sent_to(host).empty());
  job.hear();
  for (const std::string& host : kBothHosts) CHECK(has(job.spawner.sent_to(host), ToAgent::kPrepare));
  job.answer(0, "m0");
  CHECK(job.start.outcome() == Outcome::kNone);
  CHECK(job.start.deadline());
  job.answer(1, "m1");
  REQUIRE(job.start.outcome() == Outcome::kReady);
  CHECK_FALSE(job.start.deadline());
  CHECK_FALSE(has(job.spawner.sent_to("a"), ToAgent::kStart));
  job.start.start_ranks();
  for (const std::string& host : kBothHosts) CHECK(has(job.spawner.sent_to(host), ToAgent::kStart));
}

TEST_CASE("hosts are asked for a name of rank 0's host only if its address is an IPv6 address") {
  JobConfig config = Starting::config_of(kBothHosts);
  config.several_machines = true;
  const auto probed = [](int to, const std::string& failure) {
    return frame_of(FromAgent::kProbed, Probed{.results = {{.host = kHeadHost, .candidate = 0},
                                                           {.host = to, .candidate = 0, .failure = failure},
                                                           {.host = to, .candidate = 1}}});
  };
  const auto start = [&](Starting& job, const std::string& failure) {
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    job.hear();
    for (std::size_t host = 0; host < 2; ++host) {
      const std::string number = std::to_string(host + 1);
      HostFacts facts{.machine = "m" + number, .ports = {1, 2, 3, 4}, .address = "127.0.0.1"};
      facts.candidates = {{"eth0", "10.9.9." + number}, {"eth0", "fd99::" + number}};
      CHECK(accepted(job.start.on(job.agents[host], frame_of(FromAgent::kPrepared, Prepared{.facts = facts}))));
    }
    for (int host = 0; host < 2; ++host) {
      const auto& agent = job.agents[static_cast<std::size_t>(host)];
      CHECK(accepted(job.start.on(job.agents[agent.index], probed(1 - host, failure))));
    }
  };
  Starting v4(config);
  start(v4, "");
  CHECK(v4.start.outcome() == Outcome::kReady);
  CHECK_FALSE(has(v4.spawner.sent_to("a"), ToAgent::kResolve));

  Starting v6(config);
  start(v6, "no way");
  CHECK(v6.start.outcome() == Outcome::kNone);
  for (const std::string& host : kBothHosts) CHECK(has(v6.spawner.sent_to(host), ToAgent::kResolve));
  const auto answer = frame_of(FromAgent::kResolved, Resolved{.addresses = {{"fd99::1"}}});
  CHECK(accepted(v6.start.on(v6.agents[1], answer)));
  CHECK(v6.start.has_answered(v6.agents[1]));
  CHECK_FALSE(v6.start.has_answered(v6.agents[0]));
  CHECK(v6.start.outcome() == Outcome::kNone);
  CHECK(accepted(v6.start.on(v6.agents[0], answer)));
  CHECK(v6.start.outcome() == Outcome::kReady);
  CHECK(v6.start.layout().plan.master_name == "a");
}

TEST_CASE("a job cannot start for the reasons of all its hosts") {
  Starting job(Starting::config_of(kBothHosts));
  job.spawner.unreachable = "b";
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  CHECK(job.start.outcome() == Outcome::kNone);
  CHECK(accepted(
      job.start.on(job.agents[0], frame_of(FromAgent::kRefused, Refused{.exit_code = 127, .text = "no python"}))));
  REQUIRE(job.start.outcome() == Outcome::kRefused);
  CHECK(job.start.refusal().code == exit_code::kUnusable);
  CHECK(job.start.refusal().text ==
        "the job cannot start, because of 2 hosts of 2:\n  host b: no way to b\n  no python");
}

TEST_CASE("one host alone gives its own exit code") {
  Starting job(Starting::config_of({"a"}));
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  CHECK(accepted(
      job.start.on(job.agents[0], frame_of(FromAgent::kRefused, Refused{.exit_code = 127, .text = "no python"}))));
  REQUIRE(job.start.outcome() == Outcome::kRefused);
  CHECK(job.start.refusal().code == 127);
  CHECK(job.start.refusal().text == "no python");
}

TEST_CASE("an agent that ends before it answers is a reason too") {
  Starting job(Starting::config_of({"a"}));
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  job.agents[0].lose(false, Clock::now());
  job.start.on_explained(job.agents[0]);
  REQUIRE(job.start.outcome() == Outcome::kRefused);
  CHECK(job.start.refusal().text == "host a: the agent ended before it answered: it its connection ended");
}

// An agent on another host whose ssh has ended with this code and message.
void end_ssh(Starting& job, int code, const std::string& printed) {
  AgentLink& agent = job.agents[0];
  agent.by_ssh = true;
  agent.handle.remote = true;
  agent.wait_status = code << 8;
  agent.printed = printed;
  agent.lose(false, Clock::now());
  job.start.on_explained(agent);
}

TEST_CASE("a host that is not there yet is tried again if the user gave a time") {
  constexpr const char* kNoName = "ssh: Could not resolve hostname a: Name or service not known";
  JobConfig config = Starting::config_of({"a"});
  SECTION("by default the job ends") {
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    end_ssh(job, 255, kNoName);
    CHECK(job.start.outcome() == Outcome::kRefused);
  }
  SECTION("with --start-timeout the host gets another agent") {
    config.start.keep_trying = true;
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    end_ssh(job, 255, kNoName);
    CHECK(job.start.outcome() == Outcome::kNone);
    CHECK_FALSE(job.agents[0].up());
    REQUIRE(job.said.size() == 1);
    CHECK(job.said[0].find("distrun tries it again until --start-timeout is over") != std::string::npos);
    job.start.tick(*job.start.deadline());
    CHECK(job.agents[0].state == State::kAsked);
    job.hear();
    CHECK(has(job.spawner.sent_to("a"), ToAgent::kPrepare));
  }
  SECTION("a login that is refused is not tried again") {
    config.start.keep_trying = true;
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    end_ssh(job, 255, "me@a: Permission denied (publickey).");
    CHECK(job.start.outcome() == Outcome::kRefused);
  }
}

TEST_CASE("a folder or a program that is not there yet is waited for if the user gave a time") {
  const auto refuse = [](Starting& job, bool may_come) {
    const Refused why{.exit_code = 127, .text = "program p does not exist on host a", .may_come = may_come};
    CHECK(accepted(job.start.on(job.agents[0], frame_of(FromAgent::kRefused, why))));
  };
  JobConfig config = Starting::config_of({"a"});
  config.start.keep_trying = true;
  SECTION("on another host") {
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    job.agents[0].handle.remote = true;
    job.hear();
    CHECK(job.spawner.sent_to("a").size() == 1);
    for (int i = 0; i < 2; ++i) {
      refuse(job, true);
      REQUIRE(job.start.outcome() == Outcome::kNone);
      REQUIRE(job.said.size() == 1);
      CHECK(job.said[0] == "program p does not exist on host a. distrun tries it again until --start-timeout is over");
      job.start.tick(*job.start.deadline());
      CHECK(has(job.spawner.sent_to("a"), ToAgent::kPrepare));
    }
    job.answer(0, "m0");
    CHECK(job.start.outcome() == Outcome::kReady);
  }
  SECTION("until the time is over") {
    config.start.answer = std::chrono::milliseconds(1);
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    job.agents[0].handle.remote = true;
    refuse(job, true);
    REQUIRE(job.start.outcome() == Outcome::kRefused);
    CHECK(job.start.refusal().code == 127);
  }
  SECTION("not for other reasons, and not on this machine") {
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    const bool elsewhere = GENERATE(true, false);
    job.agents[0].handle.remote = elsewhere;
    refuse(job, !elsewhere);
    CHECK(job.start.outcome() == Outcome::kRefused);
  }
}

TEST_CASE("hosts that are asked first are prepared when it is known which of them get ranks") {
  JobConfig config = Starting::config_of(kBothHosts);
  config.assign = [](const std::vector<Topology>& found, const JobLayout& asked) -> Result<JobLayout> {
    CHECK(found.size() == 2);
    JobLayout out = asked;
    out.plan.assignment = assignment_of({"b"});
    return out;
  };
  Starting job(config);
  job.start.ask(Clock::now());
  job.hear();
  job.answer(0, "m0");
  job.answer(1, "m1");
  CHECK(job.start.outcome() == Outcome::kNone);
  job.start.tick(Clock::now());
  REQUIRE(job.start.outcome() == Outcome::kChosen);
  job.start.prepare(JobLayout(job.start.layout()), "127.0.0.1:7", Clock::now());
  REQUIRE(job.agents.size() == 1);
  CHECK(job.agents[0].host == "b");
  CHECK(job.agents[0].state == State::kAsked);
  const std::vector<Frame> frames = job.spawner.sent_to("b");
  CHECK(frames.size() == 2);
  CHECK(job.spawner.sent_to("a").size() == 1);
  CHECK(job.spawner.sent_to("a").empty());
  CHECK(job.spawner.agents.at("a").closed());
  job.answer(0, "m1");
  CHECK(job.start.outcome() == Outcome::kReady);
}

TEST_CASE("a frame that has no place in the start is not understood") {
  Starting job(Starting::config_of({"a"}));
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  CHECK(unknown(job.start.on(job.agents[0], frame_of(FromAgent::kExited, RankExited{}))));
  CHECK_FALSE(job.start.on(job.agents[0], {.type = static_cast<std::uint8_t>(FromAgent::kPrepared)}).ok());
}

}  // namespace
}  // namespace distrun::launcher
