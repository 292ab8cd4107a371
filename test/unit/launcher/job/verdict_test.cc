#include "launcher/job/ranks/verdict.h"

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace distrun::launcher {
namespace {

using Kind = net::JobEvent::Kind;
using std::chrono::milliseconds;

constexpr TimePoint kStart{};

Verdict job_of(int ranks) {
  Verdict verdict({.hosts = std::vector<std::string>(static_cast<std::size_t>(ranks), "host"), .grace = 10});
  for (int rank = 0; rank < ranks; ++rank) verdict.started({.rank = rank, .pid = 100 + rank});
  return verdict;
}

bool quiet(const JobActions& actions) { return !actions.publish && !actions.stop && !actions.failure_known; }

TEST_CASE("a job in which all end well has exit code 0") {
  Verdict job = job_of(2);
  CHECK(quiet(job.joined(0)));
  CHECK(quiet(job.joined(1)));
  CHECK(quiet(job.left(1)));
  CHECK(quiet(job.left(0)));
  CHECK(quiet(job.exited({.rank = 0})));
  CHECK(quiet(job.exited({.rank = 1})));
  CHECK(job.exit_code() == 0);
  CHECK_FALSE(job.ending());
}

TEST_CASE("ranks that serve end with the one they serve") {
  Verdict job({.hosts = std::vector<std::string>(4, "host"), .grace = 10, .servers = {1, 2}, .clients = {0}});
  JobActions actions = job.exited({.rank = 0});
  CHECK(actions.end_ranks == std::vector<int>{1, 2});
  CHECK_FALSE(actions.stop);
  CHECK(quiet(job.exited({.rank = 1, .signal = SIGKILL})));
  CHECK(quiet(job.exited({.rank = 2, .signal = SIGKILL})));
  CHECK(job.exit_code() == 0);
  // The evaluator is not a server, so its failure counts even now.
  CHECK(job.exited({.rank = 3, .exit_code = 5}).failure_known);
  CHECK(job.exit_code() == 5);

  Verdict lost({.hosts = std::vector<std::string>(3, "host"), .grace = 10, .servers = {1, 2}, .clients = {0}});
  CHECK(lost.exited({.rank = 2, .signal = SIGKILL}).failure_known);
  CHECK(lost.exit_code() == 137);
  Verdict failed({.hosts = std::vector<std::string>(3, "host"), .grace = 10, .servers = {1, 2}, .clients = {0}});
  actions = failed.exited({.rank = 0, .exit_code = 1});
  CHECK(actions.end_ranks.empty());
  CHECK(actions.stop.has_value());

  Verdict several({.hosts = std::vector<std::string>(3, "host"), .grace = 10, .servers = {0}, .clients = {1, 2}});
  CHECK(quiet(several.exited({.rank = 2})));
  CHECK(several.exited({.rank = 1}).end_ranks == std::vector<int>{0});
  CHECK(quiet(several.exited({.rank = 0, .signal = SIGKILL})));
  CHECK(several.exit_code() == 0);
}

TEST_CASE("the first failing rank gives the exit code, and all are told at once") {
  Verdict job = job_of(3);
  job.joined(0);
  job.joined(1);
  const JobActions actions = job.exited({.rank = 1, .pid = 101, .signal = SIGKILL});
  REQUIRE(actions.publish);
  const net::JobEvent& event = *actions.publish;
  CHECK(event.kind == Kind::kRankFailed);
  CHECK(event.rank == 1);
  CHECK(event.signal == SIGKILL);
  CHECK(event.host == "host");
  CHECK(event.cause == "killed by signal 9 (SIGKILL)");
  CHECK(actions.failure_known);
  // Rank 0 uses the runtime and ends by itself. Rank 2 does not know of the failure.
  REQUIRE(actions.stop);
  CHECK(actions.stop->term_now == std::vector<int>{2});
  CHECK(actions.stop->term_after == 5000);
  CHECK(actions.stop->kill_after == 10000);
  CHECK(quiet(job.exited({.rank = 0, .exit_code = 1})));
  CHECK(quiet(job.exited({.rank = 2, .signal = SIGTERM, .by_agent = true})));
  CHECK(job.exit_code() == 137);
  CHECK(job.failure()->rank == 1);
}

TEST_CASE("the others are pointed to the output of a rank if it wrote some, and had time to say why it ends") {
  const auto points = [](const RankExited& event) {
    Verdict job = job_of(2);
    job.joined(0);
    return job.exited(event).publish->explained_by_output;
  };
  CHECK(points({.rank = 1, .exit_code = 3, .wrote = true}));
  CHECK_FALSE(points({.rank = 1, .exit_code = 3}));
  CHECK(points({.rank = 1, .signal = SIGSEGV, .wrote = true}));
  CHECK_FALSE(points({.rank = 1, .signal = SIGSEGV}));
  CHECK_FALSE(points({.rank = 1, .signal = SIGKILL, .wrote = true}));
  CHECK(points({.rank = 1, .wrote = true}));  // left early
}

TEST_CASE("a rank that says why it fails is the first cause even if another ends sooner") {
  Verdict job = job_of(2);
  job.joined(0);
  job.joined(1);
  const JobActions actions = job.reported(1, {.cause = "ValueError: x", .place = {.file = "train.py", .line = 8}});
  REQUIRE(actions.publish);
  CHECK(actions.publish->kind == Kind::kRankRaised);
  CHECK_FALSE(actions.publish->explained_by_output);
  CHECK(actions.publish->cause == "ValueError: x");
  CHECK(actions.stop->term_now.empty());
  CHECK(quiet(job.exited({.rank = 0, .exit_code = 7})));
  CHECK(quiet(job.exited({.rank = 1, .exit_code = 3})));
  CHECK(job.exit_code() == 3);
  CHECK(job.failure()->cause.kind == CauseKind::kRaised);
  CHECK(text_of(job.failure()->cause) == "ValueError: x");
  CHECK((job.failure()->place.file == "train.py" && job.failure()->place.line == 8));
  CHECK(job.failure()->tensor.empty());
}

TEST_CASE("a rank that said that it fails is a failure with code 1, unless it ends with another code") {
  Verdict job = job_of(2);
  job.joined(1);
  job.reported(1, {.cause = "boom"});
  SECTION("with 0") { job.exited({.rank = 1}); }
  SECTION("in the clean-up of a library, by a crash") { job.exited({.rank = 1, .signal = SIGABRT}); }
  CHECK(job.exit_code() == 1);
}

TEST_CASE("Python ends itself with SIGINT after KeyboardInterrupt, which is the code of the job") {
  Verdict job = job_of(2);
  job.joined(1);
  job.reported(1, {.cause = "KeyboardInterrupt (train.py:3)"});
  job.exited({.rank = 1, .signal = SIGINT});
  CHECK(job.exit_code() == 130);
}

TEST_CASE("a rank that holds the others up is the first cause, whatever the others then end with") {
  Verdict job = job_of(2);
  job.joined(0);
  job.joined(1);
  const Blame stalled{
      .failure = {.rank = 1, .cause = {.kind = CauseKind::kStalled, .text = "no answer"}, .tensor = "grad"}, .lost = 1};
  const JobActions actions = job.blame(stalled);
  REQUIRE(actions.publish);
  CHECK(actions.publish->rank == 1);
  CHECK(quiet(job.blame(stalled)));
  CHECK(quiet(job.exited({.rank = 0, .exit_code = 1})));
  CHECK(job.failure()->rank == 1);
  CHECK(job.failure()->cause.kind == CauseKind::kStalled);
  CHECK(job.failure()->tensor == "grad");
  CHECK(text_of(job.failure()->cause) == "blocked the other ranks: no answer");
  SECTION("distrun ends it") { job.exited({.rank = 1, .signal = 9, .by_agent = true}); }
  SECTION("it dies in its clean-up") { job.exited({.rank = 1, .signal = 6}); }
  CHECK(job.exit_code() == 1);
}

TEST_CASE("an agent that is told to end from outside: its rank's signal is the first cause") {
  Verdict job = job_of(2);
  const JobActions actions = job.exited({.rank = 1, .signal = SIGTERM, .by_agent = true});
  REQUIRE(actions.publish);
  CHECK(job.failure()->cause.by_other);
  CHECK(text_of(job.failure()->cause).find("told to end") != std::string::npos);
  CHECK(quiet(job.exited({.rank = 0, .signal = SIGTERM, .by_agent = true})));
  CHECK(job.exit_code() == 143);
}

TEST_CASE("who leaves early and fails gives its own code") {
  SECTION("in good order, but with a code of its own") {
    Verdict job = job_of(2);
    job.joined(0);
    job.joined(1);
    job.left_early(1, {.cause = "left"});
    job.exited({.rank = 0, .exit_code = 1});
    CHECK(quiet(job.exited({.rank = 1, .exit_code = 3})));
    CHECK(job.exit_code() == 3);
    CHECK(job.failure()->cause.kind == CauseKind::kExited);
    CHECK(text_of(job.failure()->cause) == "exited with code 3");
  }
  SECTION("in good order, and ended by us later") {
    Verdict job = job_of(2);
    job.joined(0);
    job.joined(1);
    job.left_early(1, {.cause = "left"});
    CHECK(quiet(job.exited({.rank = 1, .signal = 15, .by_agent = true})));
    CHECK(job.exit_code() == 76);
  }
}

TEST_CASE("a rank that ends without init() has left early") {
  SECTION("without init(), which the others wait in") {
    Verdict job = job_of(2);
    job.joined(0);
    const JobActions actions = job.exited({.rank = 1});
    CHECK(actions.publish.value().cause == "exited with code 0 and never called init()");
    CHECK(job.failure()->cause.leave == Leave::kNoInit);
  }
  SECTION("without another init(), which the others wait in") {
    Verdict job = job_of(2);
    for (const int rank : {0, 1}) {
      job.joined(rank);
      job.left(rank);
    }
    job.joined(0);
    CHECK(job.exited({.rank = 1}).publish);
    CHECK(job.failure()->cause.leave == Leave::kNoNextInit);
  }
}

TEST_CASE("leaving early with 0 is a failure of its own only if somebody stays") {
  SECTION("without having left its session") {
    Verdict job = job_of(2);
    job.joined(0);
    job.joined(1);
    const JobActions actions = job.exited({.rank = 0});
    REQUIRE(actions.publish);
    CHECK(actions.publish->kind == Kind::kRankLeft);
    CHECK(job.failure()->cause.leave == Leave::kNoShutdown);
    CHECK(job.exit_code() == 76);
  }
  SECTION("in good order, as those say who miss it") {
    Verdict job = job_of(2);
    job.joined(0);
    job.joined(1);
    CHECK(job.left_early(1, {.cause = "left"}).publish.value().kind == Kind::kRankLeft);
    CHECK(quiet(job.exited({.rank = 0, .exit_code = 1})));
    CHECK(quiet(job.exited({.rank = 1})));
    CHECK(job.exit_code() == 76);
    CHECK(job.failure()->rank == 1);
    CHECK(job.failure()->cause.leave == Leave::kEnded);
  }
  SECTION("without having come at all, before the other comes") {
    Verdict job = job_of(2);
    CHECK(quiet(job.exited({.rank = 0})));
    CHECK_FALSE(quiet(job.joined(1)));
    CHECK(job.exit_code() == 76);
  }
  SECTION("while the other is in a later session") {
    Verdict job = job_of(2);
    for (int rank = 0; rank < 2; ++rank) {
      job.joined(rank);
      job.left(rank);
    }
    CHECK(quiet(job.exited({.rank = 0})));
    CHECK_FALSE(quiet(job.joined(1)));
    CHECK(job.exit_code() == 76);
  }
  SECTION("ranks that never come may end as they like") {
    Verdict job = job_of(3);
    CHECK(quiet(job.exited({.rank = 0})));
    CHECK(quiet(job.exited({.rank = 2})));
    CHECK(job.exit_code() == 0);
  }
  SECTION("the last one in a session may forget to leave") {
    Verdict job = job_of(2);
    job.joined(0);
    job.joined(1);
    job.left(0);
    CHECK(quiet(job.exited({.rank = 0})));
    CHECK(quiet(job.exited({.rank = 1})));
    CHECK(job.exit_code() == 0);
  }
}

TEST_CASE("Ctrl-C ends in good order, twice at once") {
  Verdict job = job_of(1);
  const JobActions first = job.interrupted(SIGINT, kStart);
  REQUIRE(first.stop);
  CHECK(first.interrupt_ranks);
  CHECK(first.stop->term_after == 5000);
  CHECK(first.stop->kill_after == 10000);
  CHECK(quiet(job.reported(0, {.cause = "KeyboardInterrupt"})));
  CHECK(quiet(job.exited({.rank = 0, .signal = SIGTERM, .by_agent = true})));
  // A program around distrun passes the first one on.
  const JobActions same = job.interrupted(SIGINT, kStart + Interrupts::kPassedOn - milliseconds(1));
  CHECK_FALSE(same.stop);
  CHECK_FALSE(same.interrupt_ranks);
  CHECK_FALSE(job.interrupted_again());
  const JobActions second = job.interrupted(SIGINT, kStart + Interrupts::kPassedOn);
  CHECK_FALSE(second.interrupt_ranks);
  CHECK(second.stop->kill_after == 0);
  CHECK(job.interrupted_again());
  CHECK(job.exit_code() == 130);
  CHECK_FALSE(job.rank_failed());
  CHECK(job.failure().value().cause.kind == CauseKind::kInterrupted);
}

TEST_CASE("other signals that come together are one, and mean TERM at once") {
  for (const auto& [first, second] : {std::pair(SIGHUP, SIGHUP),
                                      {SIGTERM, SIGHUP},
                                      {SIGHUP, SIGTERM},
                                      {SIGTERM, SIGTERM},
                                      {SIGINT, SIGTERM},
                                      {SIGHUP, SIGINT}}) {
    Verdict job = job_of(1);
    job.interrupted(first, kStart);
    const JobActions actions = job.interrupted(second, kStart + milliseconds(900));
    REQUIRE(actions.stop);
    CHECK_FALSE(actions.interrupt_ranks);
    CHECK(actions.stop->term_after == 0);
    CHECK(actions.stop->kill_after == 10000);
    CHECK_FALSE(job.interrupted_again());
    CHECK(job.exit_code() == 128 + first);
  }
}

TEST_CASE("a later signal repeats the request, but no SIGHUP") {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    Verdict job = job_of(1);
    job.interrupted(SIGTERM, kStart);
    const JobActions later = job.interrupted(number, kStart + Interrupts::kTogether);
    CHECK(later.stop->kill_after == (number == SIGHUP ? 10000 : 0));
    CHECK(job.interrupted_again() == (number != SIGHUP));
  }
}

TEST_CASE("the end of a large job costs little") {
  constexpr int kRanks = 4096;
  Verdict job = job_of(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) CHECK(quiet(job.joined(rank)));
  const TimePoint before = Clock::now();
  // All ranks except rank 0 leave and exit first. Rank 0 does so last.
  for (int rank = 1; rank <= kRanks; ++rank) {
    job.left(rank % kRanks);
    if (!quiet(job.exited({.rank = rank % kRanks}))) FAIL("rank " << rank % kRanks);
  }
  CHECK(Clock::now() - before < std::chrono::seconds(5));
  CHECK(job.exit_code() == 0);
}

Cause lost(const std::string& why) { return {.kind = CauseKind::kHostLost, .text = why}; }

TEST_CASE("ranks are told of a lost host once, and not of another one") {
  Verdict job({.hosts = {"a", "b", "b", "c"}, .host_of = {0, 1, 1, 2}, .grace = 10});
  for (int rank = 0; rank < 4; ++rank) job.joined(rank);
  const JobActions first = job.hosts_lost({1}, lost("no power"));
  REQUIRE(first.publish);
  CHECK(first.publish->rank == 1);
  CHECK(first.publish->host == "b");
  CHECK(first.publish->cause == "no power");
  CHECK(first.stop);
  CHECK(quiet(job.hosts_lost({2}, lost("no network"))));
  CHECK(job.failure()->cause.kind == CauseKind::kHostLost);
  CHECK(job.failure()->host == "b");
  CHECK(job.exit_code() == 75);
}

TEST_CASE("hosts that are lost together are all named, and ranks hear of the first rank there") {
  Verdict job({.hosts = {"a", "b", "b", "c"}, .host_of = {0, 1, 1, 2}, .grace = 10});
  const JobActions actions = job.hosts_lost({1, 2}, lost("hosts b and c are silent (2 of 3)"));
  REQUIRE(actions.publish);
  CHECK(actions.publish->rank == 1);
  CHECK(job.failure()->host.empty());
  CHECK(job.failure()->hosts == std::vector<std::string>{"b", "c"});
  CHECK(job.failure()->cause.text == "hosts b and c are silent (2 of 3)");
  CHECK(job.exit_code() == 75);
}

TEST_CASE("where the launcher's own network is gone, no host is blamed, but those that do not answer are known") {
  Verdict job({.hosts = {"a", "b", "c"}, .host_of = {0, 1, 2}, .grace = 10});
  const JobActions actions =
      job.hosts_lost({1, 2}, {.kind = CauseKind::kOwnNetwork, .text = "this machine's own network is gone"});
  REQUIRE(actions.publish);
  CHECK(actions.publish->cause == "the network of the launcher's machine is gone");
  CHECK(job.failure()->cause.kind == CauseKind::kOwnNetwork);
  CHECK(actions.publish->kind == Kind::kHostsFailed);
  CHECK(job.failure()->host.empty());
  CHECK(job.failure()->hosts == std::vector<std::string>{"b", "c"});
  CHECK(job.exit_code() == 75);
}

TEST_CASE("a host that is lost when a rank has failed is no news, but one that is lost when a rank has left is") {
  Verdict failed({.hosts = {"a", "b"}, .host_of = {0, 1}, .grace = 10});
  failed.exited({.rank = 0, .exit_code = 1});
  CHECK(quiet(failed.hosts_lost({1}, lost("no power"))));
  // Whether a rank left is certain only after the others have asked their leader, which may be lost.
  Verdict left({.hosts = {"a", "b"}, .host_of = {0, 1}, .grace = 10});
  left.joined(0);
  left.joined(1);
  CHECK(left.exited({.rank = 0}).publish);
  CHECK(left.hosts_lost({1}, lost("no power")).publish);
}

TEST_CASE("a rank that calls init() after a Ctrl-C has lost it and gets it again, once") {
  Verdict job = job_of(3);
  job.joined(1);
  REQUIRE(job.interrupted(SIGINT, kStart).interrupt_ranks);
  CHECK(job.joined(0).interrupt_again == std::vector<int>{0});
  CHECK(job.joined(0).interrupt_again.empty());
  CHECK(job.joined(1).interrupt_again.empty());
  Verdict term = job_of(1);
  term.interrupted(SIGTERM, kStart);
  CHECK(term.joined(0).interrupt_again.empty());
  CHECK(job_of(1).joined(0).interrupt_again.empty());
}

TEST_CASE("the other ends of a job") {
  Verdict late = job_of(1);
  CHECK(late.timed_out().stop);
  CHECK(late.exit_code() == 124);
  Verdict early = job_of(1);
  early.timed_out("the job has not started");
  CHECK(text_of(early.failure()->cause) == "the job has not started");
  Verdict term = job_of(1);
  CHECK(term.interrupted(SIGTERM, kStart).stop->term_after == 0);
  CHECK(term.exit_code() == 143);
  Verdict gone = job_of(1);
  gone.reader_gone();
  CHECK(gone.exit_code() == 141);
  Verdict broken = job_of(1);
  broken.broken(75, "an agent refuses");
  CHECK(quiet(broken.timed_out()));
  CHECK(broken.exit_code() == 75);
  Verdict failed = job_of(2);
  failed.exited({.rank = 0, .exit_code = 5});
  // A user's interrupt does not change the cause. Ranks that already end need no Ctrl-C.
  CHECK_FALSE(failed.interrupted(SIGINT, kStart).interrupt_ranks);
  CHECK(failed.exit_code() == 5);
}

TEST_CASE("events about ranks that do not exist change nothing") {
  Verdict job = job_of(1);
  CHECK(quiet(job.joined(7)));
  CHECK(quiet(job.reported(-1, {.cause = "x"})));
  CHECK(quiet(job.exited({.rank = 1, .exit_code = 1})));
  CHECK(job.exit_code() == 0);
}

TEST_CASE("of ranks that end with others' loss, the one whose connection ended first is the cause") {
  Verdict job = job_of(4);
  for (int rank = 0; rank < 4; ++rank) job.joined(rank);
  job.disconnected(2, 5);  // killed, and its exit is not known yet
  job.disconnected(0, 6);
  CHECK(quiet(job.exited({.rank = 0, .exit_code = 1}, 7)));
  CHECK(quiet(job.exited({.rank = 3, .signal = SIGABRT}, 7)));
  CHECK_FALSE(job.ending());
  const JobActions actions = job.exited({.rank = 2, .signal = SIGKILL}, 8);
  REQUIRE(actions.failure_known);
  CHECK(actions.stop.has_value());
  CHECK(job.failure()->rank == 2);
  CHECK(quiet(job.exited({.rank = 1, .exit_code = 1}, 9)));
  CHECK(job.exit_code() == 137);
}

TEST_CASE("what a rank ends with is not held back for one whose connection ended later, or in the same round") {
  for (const std::uint64_t round : {5U, 6U}) {
    Verdict job = job_of(3);
    for (int rank = 0; rank < 3; ++rank) job.joined(rank);
    job.disconnected(1, 5);
    job.disconnected(2, round);
    CHECK(job.exited({.rank = 1, .exit_code = 3}, 7).failure_known);
    CHECK(quiet(job.exited({.rank = 2, .signal = SIGKILL}, 8)));
    CHECK(job.exit_code() == 3);
  }
}

TEST_CASE("what a rank that misses another ends with is held back until it is known who is to blame") {
  Verdict job = job_of(3);
  for (int rank = 0; rank < 3; ++rank) job.joined(rank);
  job.misses(1);
  job.misses(3);  // there is no such rank
  job.disconnected(1, 5);
  job.disconnected(2, 5);
  CHECK(quiet(job.exited({.rank = 1, .exit_code = 1}, 5)));
  CHECK(quiet(job.reported(1, {.cause = "RankLost"})));
  SECTION("the other dies") {
    CHECK(job.exited({.rank = 2, .signal = SIGKILL}, 6).failure_known);
    CHECK(job.failure()->rank == 2);
    CHECK(job.exit_code() == 137);
  }
  SECTION("a third one dies") {
    job.runs_on(2);
    CHECK(job.exited({.rank = 0, .exit_code = 9}, 6).failure_known);
    CHECK(job.exit_code() == 9);
  }
  SECTION("nobody is") {
    CHECK(quiet(job.runs_on(2)));
    CHECK(job.blame(std::nullopt).failure_known);
    CHECK(job.failure()->rank == 1);
    CHECK(job.exit_code() == 1);
  }
}

TEST_CASE("a rank that misses another and ends well has not left early") {
  Verdict job = job_of(2);
  for (int rank = 0; rank < 2; ++rank) job.joined(rank);
  job.misses(0);
  CHECK(quiet(job.exited({.rank = 0})));
  SECTION("unless nobody else is to blame") {
    CHECK(job.blame(std::nullopt).failure_known);
    CHECK(job.failure()->cause.kind == CauseKind::kLeftEarly);
    CHECK(job.exit_code() == exit_code::kRankLeft);
  }
  SECTION("the one that is to blame has ended with 0: then that one has") {
    job.misses(1);
    CHECK(quiet(job.exited({.rank = 1})));
    CHECK(job.blame(Blame{.failure = {.rank = 1, .cause = {.kind = CauseKind::kLinkEnded, .link = BrokenLink{}}}})
              .failure_known);
    CHECK(job.failure()->cause.kind == CauseKind::kLeftEarly);
    CHECK(job.exit_code() == exit_code::kRankLeft);
  }
  SECTION("it blocked the other ranks, and has caught the error of that") {
    job.misses(1);
    CHECK(quiet(job.exited({.rank = 1})));
    CHECK(job.blame(Blame{.failure = {.rank = 1, .cause = {.kind = CauseKind::kStalled, .text = "deadlock"}}})
              .failure_known);
    CHECK(job.failure()->cause.kind == CauseKind::kStalled);
    CHECK(job.exit_code() == 1);
  }
}

TEST_CASE("a broken network is the cause of nobody's end, and has the code of a lost host") {
  Verdict job({.hosts = {"h1", "h2"}, .host_of = {0, 1}, .grace = 10});
  for (int rank = 0; rank < 2; ++rank) job.joined(rank);
  job.misses(1);
  CHECK(quiet(job.exited({.rank = 1, .exit_code = 1})));
  Blame cut{.lost = 0};
  cut.failure.exit_code = exit_code::kHostLost;
  cut.failure.cause = {.kind = CauseKind::kNetworkBroken,
                       .link = BrokenLink{.from = {.rank = 1, .host = "h2", .number = 1, .address = "10.0.0.2"},
                                          .to = {.rank = 0, .host = "h1", .number = 0, .address = "10.0.0.1"},
                                          .end = LinkEnd::kSilent,
                                          .silent = 30}};
  const JobActions actions = job.blame(cut);
  CHECK(actions.failure_known);
  REQUIRE(actions.publish);
  CHECK(actions.publish->kind == Kind::kHostsFailed);
  CHECK(actions.publish->rank == 0);
  CHECK(actions.publish->host == "h1");
  CHECK(actions.publish->cause ==
        "rank 1 (h2) has heard nothing from rank 0 (h1) for 30 s; both run: the network between h1 (10.0.0.1) and h2 "
        "(10.0.0.2) is broken");
  CHECK(actions.stop);
  CHECK_FALSE(job.rank_failed());
  CHECK(quiet(job.exited({.rank = 0, .exit_code = 1})));
  CHECK(job.exit_code() == exit_code::kHostLost);
}

TEST_CASE("a rank that was disconnected and runs on or is connected again was no cause; one that left early was") {
  const int how = GENERATE(0, 1, 2);
  CAPTURE(how);
  Verdict job({.hosts = std::vector<std::string>(4, "host"), .grace = 10, .servers = {3}, .clients = {0, 1, 2}});
  for (int rank = 0; rank < 4; ++rank) job.joined(rank);
  job.disconnected(2, 5);
  CHECK(quiet(job.exited({.rank = 1, .exit_code = 4}, 7)));
  CHECK(quiet(job.exited({.rank = 0, .exit_code = 5}, 8)));
  const JobActions actions = how == 0 ? job.runs_on(2) : how == 1 ? job.joined(2) : job.exited({.rank = 2}, 9);
  REQUIRE(actions.failure_known);
  CHECK(actions.end_ranks.empty());
  CHECK(job.failure()->rank == (how == 2 ? 2 : 1));
  CHECK(job.exit_code() == (how == 2 ? 76 : 4));
}

TEST_CASE("a rank that has called shutdown() too early and lives is not said to have ended") {
  Verdict verdict({.hosts = {"h1", "h1"}, .host_of = {0, 0}});
  for (const int rank : {0, 1}) {
    verdict.started({.rank = rank, .pid = 10 + rank});
    verdict.joined(rank);
  }
  verdict.left(1);
  verdict.left_early(1, {.cause = "left"});
  REQUIRE(verdict.failure());
  CHECK(
      first_cause_report(*verdict.failure())
          .starts_with("rank 1 on host h1 (pid 11) left early: it called shutdown() while other ranks still needed it, "
                       "and its process ran on.\nThis ended the job.\nLet every rank do the same number of "
                       "steps before it calls shutdown().\n"));
  SECTION("it is ended by us") { verdict.exited({.rank = 1, .pid = 11, .signal = 15, .by_agent = true}); }
  SECTION("it ends by itself") {
    verdict.exited({.rank = 1, .pid = 11});
    CHECK(verdict.failure()->cause.leave == Leave::kEnded);
  }
  CHECK(verdict.exit_code() == exit_code::kRankLeft);
}

}  // namespace
}  // namespace distrun::launcher
