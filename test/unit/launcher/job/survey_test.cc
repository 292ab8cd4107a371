// The survey's questions to agents: two hosts with two ranks each. The test plays the agents.
#include "launcher/job/ranks/survey.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "test/unit/launcher/job/job_parts.h"

namespace distrun::launcher {
namespace {

struct Asked {
  explicit Asked(bool paths = true) {
    for (std::size_t host = 0; host < agents.size(); ++host) {
      agents[host].handle = *spawner.start(hosts[host], "");
      agents[host].handle.pipe.await(kAgentGreeting);
      agents[host].handle.pipe.receive();
      agents[host].handle.remote = host > 0;
      agents[host].state = AgentLink::State::kAnswered;
      agents[host].facts = HostFacts{.address = "10.0.0." + std::to_string(host + 1)};
    }
    survey.open(paths ? std::optional(net::JobKey::generate()) : std::nullopt, 30);
  }
  void loss(int rank, int other, LinkEnd link) {
    survey.add({.kind = net::StoreNotice::Kind::kFollows,
                .rank = rank,
                .failure = {.cause = "why"},
                .missed = {.ranks = {other}, .link = link}},
               now);
  }
  Survey::Found look(Duration later = {}) {
    now += later;
    return survey.look(now);
  }
  // The last question of this kind that a host received.
  template <class Message>
  std::optional<Message> sent_to(const std::string& host, ToAgent type) {
    std::optional<Message> out;
    for (const Frame& frame : spawner.sent_to(host)) {
      if (frame.type == static_cast<std::uint8_t>(type)) out = *decode<Message>(frame.payload);
    }
    return out;
  }
  void answer(std::size_t host, const RankStates& states) {
    const auto taken = survey.on(agents[host], frame_of(FromAgent::kRankStates, states));
    CHECK((taken.ok() && *taken));
  }
  void probed(std::size_t host, std::vector<ProbeResult> results) {
    const auto taken = survey.on(agents[host], frame_of(FromAgent::kProbed, Probed{.results = std::move(results)}));
    CHECK((taken.ok() && *taken));
  }

  std::vector<std::string> hosts = {"a", "b"};
  FakeSpawner spawner;
  AgentLinks agents{assignment_of(hosts), spawner, false, [](const std::string&) {}};
  Membership members{assignment_of(hosts)};
  Survey survey{agents, members};
  TimePoint now = Clock::now();
};

TEST_CASE("nobody is asked before a rank reports something") {
  Asked job;
  const Survey::Found found = job.look(std::chrono::hours(1));
  CHECK_FALSE((found.no_cause || found.blame));
  CHECK_FALSE(job.survey.deadline());
  CHECK(job.spawner.sent_to("a").empty());
}

TEST_CASE("agents are asked for states and paths, and the decision has the addresses") {
  Asked job;
  job.survey.joined(3, 77);
  job.loss(2, 0, LinkEnd::kSilent);
  job.look();
  const auto question = job.sent_to<AskStates>("b", ToAgent::kAskStates);
  REQUIRE(question);
  CHECK(question->listen);
  REQUIRE(question->sessions.size() == 1);
  CHECK((question->sessions[0].rank == 3 && question->sessions[0].pid == 77));
  job.answer(0, {.round = question->round, .probe_port = 1000, .ranks = {{0, 1, 'S'}, {1, 2, 'R'}}});
  job.answer(1, {.round = question->round - 1, .probe_port = 9});  // the answer to an earlier question
  job.look();
  CHECK_FALSE(job.sent_to<Probe>("a", ToAgent::kProbe));
  job.answer(1, {.round = question->round, .probe_port = 2000, .ranks = {{2, 3, 'S'}, {3, 77, 'S'}}});
  job.look();
  const auto probe = job.sent_to<Probe>("b", ToAgent::kProbe);
  REQUIRE(probe);
  CHECK(probe->host == 1);
  CHECK(probe->limit_ms == 2000);
  CHECK(probe->targets == std::vector<ProbeTarget>{{.host = 0, .candidate = 0, .address = "10.0.0.1:1000"}});
  CHECK(job.sent_to<Probe>("a", ToAgent::kProbe)->targets.at(0).address == "10.0.0.2:2000");
  job.probed(0, {{.host = 1, .failure = "no answer", .link = LinkEnd::kSilent}});
  job.probed(1, {{.host = 0}});
  const Survey::Found found = job.look(std::chrono::seconds(1));
  REQUIRE(found.blame);
  CHECK(text_of(found.blame->failure.cause) ==
        "rank 2 (b) has heard nothing from rank 0 (a) for 30 s; both run: the network between a (10.0.0.1) and b "
        "(10.0.0.2) is broken");
  CHECK(job.survey.take_silent().empty());
}

TEST_CASE("states that are asked for a report change nothing in the judgement") {
  Asked job;
  job.survey.joined(3, 77);
  job.survey.ask_states();
  const auto question = job.sent_to<AskStates>("b", ToAgent::kAskStates);
  REQUIRE(question);
  CHECK(question->round == AskStates::kStatesOnly);
  CHECK_FALSE(question->listen);
  CHECK(question->sessions.size() == 1);
  job.answer(1, {.round = question->round, .probe_port = 9, .ranks = {{2, 3, 'S'}, {3, 77, 'T'}}});
  CHECK(job.survey.states() == std::map<int, char>{{2, 'S'}, {3, 'T'}});
  CHECK_FALSE(job.survey.deadline());
  job.loss(2, 0, LinkEnd::kSilent);
  const Survey::Found found = job.look();
  CHECK_FALSE((found.no_cause || found.blame));  // no agent has answered the judgement's own question
}

TEST_CASE("a slow listener is no broken path, and nobody listens any more when nothing was found") {
  Asked job;
  job.survey.add({.kind = net::StoreNotice::Kind::kNoProgress, .rank = 1, .failure = {.cause = "waits"}}, job.now);
  job.look();
  for (const std::size_t host : {0U, 1U}) job.answer(host, {.round = 1, .probe_port = 1000});
  job.look();
  job.probed(0, {{.host = 1, .failure = "it accepts connections but has sent nothing"}});
  job.probed(1, {{.host = 0}});
  CHECK(job.look().no_cause);
  const auto last = job.sent_to<AskStates>("a", ToAgent::kAskStates);
  REQUIRE(last);
  CHECK_FALSE(last->listen);
  job.answer(0, {.round = last->round});
  CHECK_FALSE(job.look().no_cause);
}

TEST_CASE("a host whose agent does not answer is lost, this machine is not") {
  Asked job;
  job.loss(0, 2, LinkEnd::kSilent);
  job.look();
  SECTION("the other host") {
    job.answer(0, {.round = 1});
    job.look(MissedRanks::kAnswerTime);
    CHECK(job.survey.take_silent() == std::vector{&job.agents[1]});
    CHECK(job.survey.take_silent().empty());
  }
  SECTION("this one") {
    job.answer(1, {.round = 1});
    job.look(MissedRanks::kAnswerTime);
    CHECK(job.survey.take_silent().empty());
  }
}

TEST_CASE("an agent whose ranks have ended is not waited for") {
  Asked job;
  job.loss(2, 0, LinkEnd::kClosed);
  job.look();
  job.answer(1, {.round = 1, .probe_port = 2000});
  job.agents[0].state = AgentLink::State::kDone;
  job.look();
  CHECK(job.sent_to<Probe>("b", ToAgent::kProbe));
  job.agents[1].state = AgentLink::State::kDone;
  const Survey::Found found = job.look(MissedRanks::kExplain);
  REQUIRE(found.blame);
  CHECK(found.blame->failure.rank == 0);
}

TEST_CASE("without a key nobody tries paths") {
  Asked job(false);
  job.loss(2, 0, LinkEnd::kClosed);
  job.look();
  CHECK_FALSE(job.sent_to<AskStates>("a", ToAgent::kAskStates)->listen);
  for (const std::size_t host : {0U, 1U}) job.answer(host, {.round = 1});
  job.look();
  CHECK_FALSE(job.sent_to<Probe>("a", ToAgent::kProbe));
  CHECK(job.look(MissedRanks::kExplain).blame);
}

}  // namespace
}  // namespace distrun::launcher
