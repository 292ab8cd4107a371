// The states of a job after its start, one at a time. The test plays the agents and the rendezvous.
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

using State = AgentLink::State;

const std::vector<std::string> kHosts = {"a", "b"};

bool taken(const Result<bool>& result) { return result.ok() && *result; }

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
  for (const std::string& host : kHosts) CHECK(has(job.spawner.sent_to(host), ToAgent::kStop));
}

TEST_CASE("a rank's last word to the rendezvous is read before its end counts") {
  Started job;
  JobRunning running(job.ranks, job.input, job.output, std::nullopt, 0);
  const net::RankFailure raised{.cause = "ValueError: x", .tensor = "grad", .place = {.file = "train.py", .line = 8}};
  job.store->notices = {{.kind = net::StoreNotice::Kind::kFailed, .rank = 2, .failure = raised}};
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

TEST_CASE("ranks that fail by themselves are distinguished from those that follow from the first cause") {
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
  const std::string line = "ranks 0, 2-3 were loading libraries when they were interrupted";
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

TEST_CASE("an agent of this machine that has ended is reported as what it is") {
  AgentLink here{.host = "a"};
  CHECK(loss_of(here).cause.agent_here);
  here.silence = "it is stopped";
  CHECK_FALSE(loss_of(here).cause.agent_here);
  here.silence.clear();
  here.handle.remote = true;
  CHECK_FALSE(loss_of(here).cause.agent_here);
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
  CHECK(has(job.spawner.sent_to("a"), ToAgent::kSignal));
  CHECK_FALSE(has(job.spawner.sent_to("b"), ToAgent::kSignal));
  job.agents[1].answer({.sent = 5});
  CHECK_FALSE(has(job.spawner.sent_to("b"), ToAgent::kSignal));
  job.agents[1].answer({.sent = 6, .ready = true});
  const std::vector<Frame> frames = job.spawner.sent_to("b");
  REQUIRE(frames.size() == 2);
  CHECK(decode<Alive>(frames[0].payload)->sent == 6);
  CHECK(frames[1].type == static_cast<std::uint8_t>(ToAgent::kSignal));
}

TEST_CASE("what carries a lost host from another one is ended there, by the number that it was started under") {
  Started job;
  job.agents[0].first_index = 3;
  job.agents[1].first_index = 7;
  job.agents[1].starter = 3;
  job.agents.end_carrier(job.agents[0]);
  CHECK_FALSE(has(job.spawner.sent_to("a"), ToAgent::kHostGone));
  job.agents.end_carrier(job.agents[1]);
  const std::vector<Frame> frames = job.spawner.sent_to("a");
  REQUIRE(frames.size() == 1);
  CHECK(decode<HostGone>(frames[0].payload)->index == 7);
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
  CHECK(job.output.failures == std::vector<int>{1, 0});
}

TEST_CASE("the hint of the plan is the cure of an exception inside a library, and of no other end") {
  Started job;
  CHECK(taken(job.ranks.on(job.agents[0], Started::exit_of(1, 3))));
  const JobEnding ending(job.agents, job.ranks, job.input, job.output, true, {}, "add --tf-keras3-mwms");
  CHECK(ending.failure()->hint.empty());
  job.output.exceptions[1] = {.text = "ValueError: bad", .place = {.file = "/a/train.py", .line = 3}};
  CHECK(ending.failure()->hint.empty());
  job.output.exceptions[1].in_library = true;
  CHECK(ending.failure()->hint == "add --tf-keras3-mwms");
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
