// The states of a job, one at a time. The test plays the agents and the rendezvous.
#include <signal.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "launcher/exit_codes.h"
#include "launcher/job/job_ending.h"
#include "launcher/job/job_running.h"
#include "launcher/job/start/job_start.h"
#include "test/unit/launcher/job/job_parts.h"

namespace distrun::launcher {
namespace {

using Outcome = JobStart::Outcome;
using State = AgentLink::State;

const std::vector<std::string> kHosts = {"a", "b"};

bool taken(const Result<bool>& result) { return result.ok() && *result; }
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
    CHECK(taken(start.on(agents[host], frame_of(FromAgent::kPrepared, Prepared{.facts = facts}))));
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
  Starting job(Starting::config_of(kHosts));
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  for (const std::string& host : kHosts) CHECK(job.spawner.told(host).empty());
  job.hear();
  for (const std::string& host : kHosts) CHECK(has(job.spawner.told(host), ToAgent::kPrepare));
  job.answer(0, "m0");
  CHECK(job.start.outcome() == Outcome::kNone);
  CHECK(job.start.deadline());
  job.answer(1, "m1");
  REQUIRE(job.start.outcome() == Outcome::kReady);
  CHECK_FALSE(job.start.deadline());
  CHECK_FALSE(has(job.spawner.told("a"), ToAgent::kStart));
  job.start.start_ranks();
  for (const std::string& host : kHosts) CHECK(has(job.spawner.told(host), ToAgent::kStart));
}

TEST_CASE("hosts are asked for a name of rank 0's host only if its address is an IPv6 address") {
  JobConfig config = Starting::config_of(kHosts);
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
      CHECK(taken(job.start.on(job.agents[host], frame_of(FromAgent::kPrepared, Prepared{.facts = facts}))));
    }
    for (int host = 0; host < 2; ++host) {
      const auto& agent = job.agents[static_cast<std::size_t>(host)];
      CHECK(taken(job.start.on(job.agents[agent.index], probed(1 - host, failure))));
    }
  };
  Starting v4(config);
  start(v4, "");
  CHECK(v4.start.outcome() == Outcome::kReady);
  CHECK_FALSE(has(v4.spawner.told("a"), ToAgent::kResolve));

  Starting v6(config);
  start(v6, "no way");
  CHECK(v6.start.outcome() == Outcome::kNone);
  for (const std::string& host : kHosts) CHECK(has(v6.spawner.told(host), ToAgent::kResolve));
  const auto answer = frame_of(FromAgent::kResolved, Resolved{.addresses = {{"fd99::1"}}});
  CHECK(taken(v6.start.on(v6.agents[1], answer)));
  CHECK(v6.start.has_answered(v6.agents[1]));
  CHECK_FALSE(v6.start.has_answered(v6.agents[0]));
  CHECK(v6.start.outcome() == Outcome::kNone);
  CHECK(taken(v6.start.on(v6.agents[0], answer)));
  CHECK(v6.start.outcome() == Outcome::kReady);
  CHECK(v6.start.layout().plan.master_name == "a");
}

TEST_CASE("a job cannot start for the reasons of all its hosts") {
  Starting job(Starting::config_of(kHosts));
  job.spawner.unreachable = "b";
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  CHECK(job.start.outcome() == Outcome::kNone);
  CHECK(taken(
      job.start.on(job.agents[0], frame_of(FromAgent::kRefused, Refused{.exit_code = 127, .text = "no python"}))));
  REQUIRE(job.start.outcome() == Outcome::kRefused);
  CHECK(job.start.refusal().code == exit_code::kUnusable);
  CHECK(job.start.refusal().text ==
        "the job cannot start, because of 2 hosts of 2:\n  host b: no way to b\n  no python");
}

TEST_CASE("one host alone gives its own exit code") {
  Starting job(Starting::config_of({"a"}));
  job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
  CHECK(taken(
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
    config.start.patient = true;
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
    CHECK(has(job.spawner.told("a"), ToAgent::kPrepare));
  }
  SECTION("a login that is refused is not tried again") {
    config.start.patient = true;
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    end_ssh(job, 255, "me@a: Permission denied (publickey).");
    CHECK(job.start.outcome() == Outcome::kRefused);
  }
}

TEST_CASE("a folder or a program that is not there yet is waited for if the user gave a time") {
  const auto refuse = [](Starting& job, bool may_come) {
    const Refused why{.exit_code = 127, .text = "program p does not exist on host a", .may_come = may_come};
    CHECK(taken(job.start.on(job.agents[0], frame_of(FromAgent::kRefused, why))));
  };
  JobConfig config = Starting::config_of({"a"});
  config.start.patient = true;
  SECTION("on another host") {
    Starting job(config);
    job.start.prepare(job.config, "127.0.0.1:7", Clock::now());
    job.agents[0].handle.remote = true;
    job.hear();
    CHECK(job.spawner.told("a").size() == 1);
    for (int i = 0; i < 2; ++i) {
      refuse(job, true);
      REQUIRE(job.start.outcome() == Outcome::kNone);
      REQUIRE(job.said.size() == 1);
      CHECK(job.said[0] == "program p does not exist on host a. distrun tries it again until --start-timeout is over");
      job.start.tick(*job.start.deadline());
      CHECK(has(job.spawner.told("a"), ToAgent::kPrepare));
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
  JobConfig config = Starting::config_of(kHosts);
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
  const std::vector<Frame> told = job.spawner.told("b");
  CHECK(told.size() == 2);
  CHECK(job.spawner.told("a").size() == 1);
  CHECK(job.spawner.told("a").empty());
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

// A job with four running ranks on two hosts.
struct Started {
  explicit Started(bool ranks_run = true) {
    for (std::size_t host = 0; host < agents.size(); ++host) {
      agents[host].handle = *spawner.start(kHosts[host], "");
      agents[host].handle.pipe.await(kAgentGreeting);
      agents[host].handle.pipe.receive();
      agents[host].state = State::kAnswered;
    }
    auto owned = std::make_unique<FakeStore>();
    store = owned.get();
    ranks.open(Membership(assignment_of(kHosts)), {.grace = 10}, std::move(owned));
    for (int rank = 0; ranks_run && rank < 4; ++rank) {
      CHECK(taken(ranks.on(agents[0], frame_of(FromAgent::kStarted, RankStarted{.rank = rank, .pid = 100 + rank}))));
    }
  }
  static Frame exit_of(int rank, int code, int signal = 0, bool by_agent = false) {
    return frame_of(
        FromAgent::kExited,
        RankExited{.rank = rank, .pid = 100 + rank, .exit_code = code, .signal = signal, .by_agent = by_agent});
  }
  static Frame drained(int rank) { return frame_of(FromAgent::kDrained, Drained{.rank = rank}); }
  FakeSpawner spawner;
  FakeOutput output;
  AgentLinks agents{assignment_of(kHosts), spawner, false, [this](const std::string& text) { output.print(text); }};
  RankMonitor ranks{agents, output};
  Input input;
  FakeStore* store = nullptr;
};

TEST_CASE("while ranks run, the first that fails ends the job for all") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, std::nullopt, 0);
  CHECK(taken(running.on(job.agents[0], frame_of(FromAgent::kOutput, StreamBytes{.rank = 1}))));
  CHECK(taken(running.on(job.agents[0], Started::exit_of(0, 0))));
  CHECK(taken(running.on(job.agents[0], Started::drained(0))));
  CHECK(job.output.written == std::vector<int>{1});
  CHECK(job.output.finished == std::vector<int>{0});
  CHECK_FALSE(job.ranks.ending());
  CHECK(taken(running.on(job.agents[1], Started::exit_of(3, 0, SIGSEGV))));
  REQUIRE(job.ranks.ending());
  CHECK(job.ranks.verdict().failure()->rank == 3);
  CHECK(job.ranks.kill_by());
  CHECK(job.output.kept_back == std::vector<int>{3});
  REQUIRE(job.store->published.size() == 1);
  CHECK(job.store->published[0].rank == 3);
  for (const std::string& host : kHosts) CHECK(has(job.spawner.told(host), ToAgent::kStop));
}

TEST_CASE("a rank's last word to the rendezvous is read before its end counts") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, std::nullopt, 0);
  const net::RankFailure told{.cause = "ValueError: x", .tensor = "grad", .place = {.file = "train.py", .line = 8}};
  job.store->notices = {{.kind = net::StoreNotice::Kind::kFailed, .rank = 2, .failure = told}};
  CHECK(taken(running.on(job.agents[1], Started::exit_of(2, 1))));
  REQUIRE(job.ranks.verdict().rank_failed());
  const FailureReport failure = *job.ranks.verdict().failure();
  CHECK(failure.cause.kind == CauseKind::kRaised);
  CHECK(failure.cause.text == "ValueError: x");
  CHECK(failure.tensor == "grad");
  CHECK((failure.place.file == "train.py" && failure.place.line == 8));
}

TEST_CASE("the error of a rank that misses another is kept back, and shown if nobody is to blame") {
  Started job;
  job.store->notices = {{.kind = net::StoreNotice::Kind::kFollows, .rank = 2},
                        {.kind = net::StoreNotice::Kind::kNoProgress, .rank = 3}};
  CHECK(taken(job.ranks.on(job.agents[1], frame_of(FromAgent::kOutput, StreamBytes{.rank = 2, .stream = 1}))));
  CHECK(job.output.followers == std::vector<int>{2});
  job.ranks.interrupt(SIGTERM, Clock::now());
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  ending.report_end(true);
  CHECK(job.output.shown == std::vector<int>{-1});
}

TEST_CASE("the errors of ranks that needed one that left early are kept back") {
  Started job;
  job.store->notices = {{.kind = net::StoreNotice::Kind::kLeftEarly, .rank = 1, .failure = {.tensor = "grad"}}};
  CHECK(taken(job.ranks.on(job.agents[0], frame_of(FromAgent::kOutput, StreamBytes{.rank = 0, .stream = 1}))));
  CHECK(job.output.kept_back == std::vector<int>{1});
}

TEST_CASE("ranks that fail by themselves are told from those that follow from the first cause") {
  using Relation = Follower::Relation;
  Started job;
  const RaisedException same{.text = "ImportError: x", .place = {.file = "/a/train.py", .line = 1}};
  const RaisedException other{.text = "KeyError: 'x'", .place = {.file = "/a/train.py", .line = 2}};
  job.output.exceptions = {{0, same}, {1, same}, {2, other}, {3, same}};
  job.output.words = {{0, same.text}, {1, same.text}, {2, other.text}, {3, same.text}};
  CHECK(taken(job.ranks.on(job.agents[0], Started::exit_of(1, 1))));
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  CHECK(taken(ending.on(job.agents[0], Started::exit_of(0, 1))));
  CHECK(taken(ending.on(job.agents[1], Started::exit_of(2, 1))));
  CHECK(taken(ending.on(job.agents[1], Started::exit_of(3, 0, SIGTERM, true))));
  auto failure = ending.failure();
  REQUIRE((failure && failure->followers.size() == 3));
  CHECK(failure->followers[0].relation == Relation::kSame);
  CHECK(failure->followers[1].relation == Relation::kOther);
  CHECK(failure->followers[1].cause.exception == "KeyError: 'x' (train.py:2)");
  CHECK(failure->followers[2].relation == Relation::kSame);  // the launcher's signal came after its traceback
  // A rank of a session learns of the first cause, so its own error may follow from that.
  job.store->notices = {{.kind = net::StoreNotice::Kind::kJoined, .rank = 2}};
  CHECK(taken(job.ranks.on(job.agents[0], frame_of(FromAgent::kOutput, StreamBytes{.rank = 2, .stream = 1}))));
  CHECK(ending.failure()->followers[1].relation == Relation::kFollows);
}

TEST_CASE("an operation that failed on all ranks has one cause") {
  Started job;
  job.output.words = {{0, "MismatchError: x"}, {1, "MismatchError: x"}};
  job.output.exceptions = {{0, {.text = "MismatchError: x"}}, {1, {.text = "MismatchError: x"}}};
  job.store->notices = {
      {.kind = net::StoreNotice::Kind::kFailed, .rank = 0, .failure = {.cause = "MismatchError: x", .tensor = "grad"}}};
  CHECK(taken(job.ranks.on(job.agents[0], Started::exit_of(0, 1))));
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  CHECK(taken(ending.on(job.agents[0], Started::exit_of(1, 1))));
  CHECK(ending.failure()->followers.at(0).relation == Follower::Relation::kFollows);
}

TEST_CASE("Ctrl-C folds the tracebacks of ranks that use the runtime not yet, and one line tells of them") {
  Started job;
  job.store->notices = {{.kind = net::StoreNotice::Kind::kJoined, .rank = 1}};
  CHECK(taken(job.ranks.on(job.agents[0], frame_of(FromAgent::kOutput, StreamBytes{.rank = 0, .stream = 1}))));
  job.ranks.interrupt(SIGINT, Clock::now());
  CHECK(job.output.interrupts == std::vector<int>{0, 2, 3});
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  ending.report_end(false);
  const std::string line = "ranks 0,2-3 were loading libraries when they were interrupted";
  CHECK(std::count(job.output.said.begin(), job.output.said.end(), line) == 1);
}

TEST_CASE("workers that are in no membership change nothing") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, std::nullopt, 0);
  CHECK(taken(running.on(job.agents[0], Started::exit_of(4, 1))));
  CHECK(taken(running.on(job.agents[0], frame_of(FromAgent::kOutput, StreamBytes{.rank = -1}))));
  CHECK(taken(running.on(job.agents[0], Started::drained(9))));
  CHECK_FALSE(job.ranks.ending());
  CHECK(job.output.written.empty());
  CHECK(job.output.finished.empty());
}

TEST_CASE("a host that is lost while ranks run is the first cause") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, std::nullopt, 0);
  AgentLink& lost = job.agents[1];
  lost.handle.remote = true;
  lost.silence = "it is stopped";
  lost.lose(job.ranks.ending(), Clock::now());
  CHECK(lost.state == State::kLost);
  running.on_explained(lost);
  running.on_lost(lost);
  CHECK(job.output.said ==
        std::vector<std::string>{"host b is lost: it is stopped.\nRanks 2-3 ran there. This ended the job; exit code "
                                 "75.\nSee if the host is up, and look in its log (journalctl, dmesg) for what ended "
                                 "distrun's agent there."});
  REQUIRE(job.ranks.ending());
  CHECK(job.ranks.verdict().failure()->cause.kind == CauseKind::kHostLost);
  CHECK(job.ranks.verdict().exit_code() == exit_code::kHostLost);
  CHECK(job.output.kept_back == std::vector<int>{-1});
}

TEST_CASE("hosts from which nothing comes are one line, and one failure") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, std::nullopt, 0);
  HostLoss loss{.links = {&job.agents[0], &job.agents[1]},
                .why = "nothing has come from there for 30 s",
                .cause = {.kind = CauseKind::kHostLost, .silent = 30, .text = "hosts a and b are silent"}};
  for (AgentLink* const agent : loss.links) agent->lose(job.ranks.ending(), Clock::now());
  running.on_silent(loss);
  CHECK(job.output.said ==
        std::vector<std::string>{"hosts a and b are silent.\nRanks 0-3 ran there. This ended the job; exit code "
                                 "75.\nIf the host only paused, give it more time with --host-timeout SECONDS."});
  CHECK(job.ranks.verdict().failure()->hosts == kHosts);
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  ending.on_silent(loss);
  CHECK(job.output.said.size() == 1);
}

TEST_CASE("links that go silent become lines and a loss, and their own answers keep them") {
  Started job;
  const TimePoint start = Clock::now();
  for (const auto& link : job.agents.all()) {
    link->handle.remote = true;
    link->sign.expect(start);
  }
  CHECK_FALSE(job.agents.look(start));
  const auto at = [start](int ms) { return start + std::chrono::milliseconds(ms); };
  for (int ms = 1000; ms <= 4000; ms += 500) {
    job.agents[0].count_as_alive(at(ms));
    CHECK_FALSE(job.agents.look(at(ms)));
  }
  CHECK(job.output.said ==
        std::vector<std::string>{"host b has been silent for 3.5 s; it is given up after 30 s (--host-timeout)"});
  CHECK(job.agents.ended(job.agents[1], at(4000)));  // as if its guard had ended it
  CHECK_FALSE(job.agents.ended(job.agents[0], at(4000)));
  job.agents[1].count_as_alive(at(6000));
  job.agents[0].count_as_alive(at(6000));
  CHECK_FALSE(job.agents.look(at(5900)));
  CHECK_FALSE(job.agents.look(at(6000)));
  CHECK(job.output.said.back() == "host b is back after 6 s");
  std::optional<HostLoss> loss;
  for (int ms = 6500; ms <= 40'000 && !loss; ms += 500) {
    job.agents[0].count_as_alive(at(ms));
    loss = job.agents.look(at(ms));
  }
  REQUIRE(loss);
  REQUIRE(loss->links == std::vector<AgentLink*>{&job.agents[1]});
  CHECK(loss->why == "nothing has come from there for 30 s");
  CHECK(loss->cause.silent == 30);
}

TEST_CASE("ranks of another host go on when it has answered the head that goes on") {
  Started job;
  job.agents[1].sign.expect(Clock::now());
  for (const auto& link : job.agents.all()) link->resume();
  CHECK(has(job.spawner.told("a"), ToAgent::kSignal));
  CHECK_FALSE(has(job.spawner.told("b"), ToAgent::kSignal));
  job.agents[1].answer({.sent = 5});
  CHECK_FALSE(has(job.spawner.told("b"), ToAgent::kSignal));
  job.agents[1].answer({.sent = 6, .ready = true});
  const std::vector<Frame> told = job.spawner.told("b");
  REQUIRE(told.size() == 2);
  CHECK(decode<Alive>(told[0].payload)->sent == 6);
  CHECK(told[1].type == static_cast<std::uint8_t>(ToAgent::kSignal));
}

TEST_CASE("what carries a lost host from another one is ended there, by the number that it was started under") {
  Started job;
  job.agents[0].first_index = 3;
  job.agents[1].first_index = 7;
  job.agents[1].starter = 3;
  job.agents.end_carrier(job.agents[0]);
  CHECK_FALSE(has(job.spawner.told("a"), ToAgent::kHostGone));
  job.agents.end_carrier(job.agents[1]);
  const std::vector<Frame> told = job.spawner.told("a");
  REQUIRE(told.size() == 1);
  CHECK(decode<HostGone>(told[0].payload)->index == 7);
}

TEST_CASE("why a host is lost is part of its failure, also where that is known later") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, std::nullopt, 0);
  AgentLink& lost = job.agents[1];
  lost.handle.remote = true;
  lost.handle.process = Process(1 << 22, Fd(), Fd());
  lost.lose(job.ranks.ending(), Clock::now());
  running.on_lost(lost);
  CHECK(job.ranks.verdict().failure()->cause.text == "host b is lost");
  lost.handle.process.reaped();
  lost.wait_status = 3 << 8;
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  ending.on_explained(lost);
  CHECK(job.output.said.back().starts_with(job.ranks.verdict().failure()->cause.text + ".\nRanks 2-3 ran there. "));
  CHECK(job.ranks.verdict().failure()->cause.text.starts_with("host b is lost: "));
}

TEST_CASE("a job that the launcher breaks off while ranks run has been started") {
  Started job;
  job.ranks.break_off(exit_code::kInternal, "a message is unknown");
  CHECK(job.ranks.verdict().failure()->cause.kind == CauseKind::kBrokenOff);
}

TEST_CASE("ranks that were to stop in time and have not are ended") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, 5.0, SIGUSR1);
  CHECK_FALSE(running.deadline());
  const TimePoint now = Clock::now();
  running.give_grace("the launcher got SIGUSR1", now);
  REQUIRE(running.deadline() == now + std::chrono::seconds(5));
  running.tick(now + std::chrono::seconds(4));
  CHECK_FALSE(job.ranks.ending());
  running.tick(now + std::chrono::seconds(5));
  CHECK(job.ranks.ending());
  CHECK(job.ranks.verdict().exit_code() == 128 + SIGUSR1);
  CHECK(*job.ranks.kill_by() <= Clock::now() + std::chrono::seconds(2));
}

TEST_CASE("the end of a job names the first cause as soon as its output is whole, and what followed at the end") {
  Started job;
  CHECK(taken(job.ranks.on(job.agents[0], Started::exit_of(1, 3))));
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  CHECK(taken(ending.on(job.agents[0], Started::exit_of(0, 1))));
  CHECK(taken(ending.on(job.agents[0], Started::drained(0))));
  CHECK(job.output.said.empty());
  CHECK(taken(ending.on(job.agents[0], Started::drained(1))));
  REQUIRE(job.output.said.size() == 1);
  CHECK(job.output.said[0].starts_with("rank 1 on host a (pid 101) exited with code 3."));
  CHECK(taken(ending.on(job.agents[1], Started::exit_of(2, 0))));
  CHECK(taken(ending.on(job.agents[1], Started::exit_of(3, 0, SIGTERM, true))));
  ending.report_end(false);
  REQUIRE(job.output.said.size() == 2);
  CHECK(job.output.said[1] == "2 other ranks ended because of it: 1 exited with code 1, the launcher ended 1.");
  CHECK(job.output.shown == std::vector<int>{2});
  const auto failure = ending.failure();
  REQUIRE(failure);
  CHECK(failure->exit_code == 3);
  CHECK(failure->cause.exception.empty());
  job.output.exceptions[1] = {.text = "ValueError: bad", .place = {.file = "/a/train.py", .line = 3}};
  CHECK(ending.failure()->cause.exception == "ValueError: bad (train.py:3)");
  CHECK(ending.failure()->place.line == 3);
  CHECK(failure->last_lines == std::vector<std::string>{"line of 1"});
  REQUIRE(failure->followers.size() == 2);
  CHECK(failure->followers[1].ended_by_us);
}

TEST_CASE("a host that is lost while its job ends is no news") {
  Started job;
  CHECK(taken(job.ranks.on(job.agents[0], Started::exit_of(1, 3))));
  JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {});
  job.agents[1].lose(job.ranks.ending(), Clock::now());
  CHECK(job.agents[1].state == State::kLostInEnding);
  ending.on_explained(job.agents[1]);
  ending.on_lost(job.agents[1]);
  CHECK(job.output.said.empty());
  CHECK(job.ranks.verdict().exit_code() == 3);
}

TEST_CASE("a job that ends before it has begun waits for no answer") {
  Started job(false);
  job.agents[1].state = State::kAsked;
  job.ranks.break_off(exit_code::kUnusable, "no such host");
  CHECK(job.output.said == std::vector<std::string>{"no such host"});
  JobEnding ending(job.agents, job.ranks, job.input, job.output, false, {});
  CHECK(taken(ending.on(job.agents[1], frame_of(FromAgent::kPrepared, Prepared{}))));
  ending.tick(Clock::now());
  CHECK(job.agents[1].state == State::kDone);
  CHECK(job.agents[1].over());
  CHECK(job.agents[0].state == State::kAnswered);
  CHECK_FALSE(ending.finished(Clock::now()));
  job.agents[0].handle.pipe.abandon();
  CHECK(ending.failure()->cause.kind == CauseKind::kNotStarted);
}

}  // namespace
}  // namespace distrun::launcher
