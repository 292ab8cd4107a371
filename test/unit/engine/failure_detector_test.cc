#include "runtime/engine/monitoring/failure_detector.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "test/support/text.h"

namespace distrun::engine {
namespace {

using std::chrono::milliseconds;
using Kind = net::JobEvent::Kind;

const TimePoint kStart = TimePoint{} + std::chrono::hours(1);
const std::vector<std::string> kHosts{"node0", "node0", "node1"};

using test::has;

TEST_CASE("all is well until something is heard") {
  const FailureDetector detector(kHosts);
  CHECK_FALSE(detector.deadline());
  CHECK_FALSE(detector.verdict(kStart));
}

TEST_CASE("the launcher's word is certain at once and has the cause") {
  FailureDetector detector(kHosts);
  detector.take_event({.rank = 2, .signal = 9, .host = "node1", .cause = "killed by signal 9 (SIGKILL)"}, kStart);
  REQUIRE(detector.deadline());
  const auto error = detector.verdict(kStart);
  REQUIRE(error);
  CHECK(error->code == Errc::kRankLost);
  CHECK(error->ranks == std::vector<int>{2});
  CHECK(error->host == "node1");
  CHECK(error->cause == "killed by signal 9 (SIGKILL)");
  CHECK_FALSE(error->usable);
  CHECK(has(error->message, "rank 2 on node1 was lost: killed by signal 9"));
}

TEST_CASE("an error points to the output of a rank only if there is some") {
  for (const bool wrote : {true, false}) {
    const net::JobEvent event{
        .rank = 2, .exit_code = 3, .host = "node1", .cause = "exited with code 3", .explained_by_output = wrote};
    FailureDetector detector(kHosts);
    detector.take_event(event, kStart);
    const std::string text = "rank 2 on node1 was lost: exited with code 3. The job ends";
    CHECK(detector.verdict(kStart)->message == text + (wrote ? "; see the output of that rank" : ""));
    CHECK(net::end_of_job(event).message() == detector.verdict(kStart)->message);
  }
}

// The error after the launcher's message, which is about rank 2.
std::optional<ErrorInfo> error_about_rank_2(const net::JobEvent& event) {
  FailureDetector detector(kHosts);
  detector.take_event(event, kStart);
  const auto error = detector.verdict(kStart);
  REQUIRE(error);
  CHECK(error->code == Errc::kRankLost);
  CHECK(error->ranks == std::vector<int>{2});
  CHECK_FALSE(error->usable);
  return error;
}

TEST_CASE("a rank that gave its reason itself has failed, and was not lost") {
  const net::JobEvent event{.kind = Kind::kRankRaised, .rank = 2, .cause = "ValueError: bad (train.py:3)"};
  const auto error = error_about_rank_2(event);
  CHECK(error->message == "rank 2 on node1 failed: ValueError: bad (train.py:3). The job ends");
  CHECK(net::end_of_job(event).message() == "rank 2 failed: ValueError: bad (train.py:3). The job ends");
}

TEST_CASE("where hosts or their network failed, the error blames no rank and points to no rank's output") {
  const net::JobEvent event{.kind = Kind::kHostsFailed, .rank = 2, .host = "node1", .cause = "host node1 is lost"};
  const auto error = error_about_rank_2(event);
  CHECK(error->message == "host node1 is lost. The job ends");
  CHECK(net::end_of_job(event).message() == error->message);
}

TEST_CASE("a connection that ended waits a second for the cause") {
  FailureDetector detector(kHosts);
  detector.suspect(1, "its control connection ended", LinkEnd::kClosed, kStart);
  detector.suspect(1, "seen again", LinkEnd::kClosed, kStart + milliseconds(500));
  CHECK_FALSE(detector.verdict(kStart + milliseconds(999)));
  CHECK(*detector.deadline() == kStart + FailureDetector::kGrace);
  const auto alone = detector.verdict(kStart + milliseconds(1000));
  REQUIRE(alone);
  CHECK(alone->code == Errc::kRankLost);
  CHECK(alone->host == "node0");
  CHECK(alone->cause == "its control connection ended");
  // The launcher's report is better: it also says which rank failed first.
  detector.take_event({.rank = 2, .host = "node1", .cause = "exited with code 3"}, kStart + milliseconds(600));
  const auto lost = detector.verdict(kStart + milliseconds(600));
  REQUIRE(lost);
  CHECK(lost->ranks == std::vector<int>{2});
  CHECK(lost->cause == "exited with code 3");
}

TEST_CASE("bytes that are not as they were sent wait for no other cause, and no operation's end hides them") {
  const LinkEnd bad = GENERATE(LinkEnd::kTampered, LinkEnd::kMalformed);
  FailureDetector detector(kHosts);
  SECTION("alone") { detector.suspect(1, "bad bytes", bad, kStart); }
  SECTION("after another end, of the same rank or not") {
    detector.suspect(GENERATE(1, 2), "its tcp connection ended", LinkEnd::kClosed, kStart - milliseconds(900));
    detector.suspect(1, "bad bytes", bad, kStart);
  }
  SECTION("after other ends that are due") {
    detector.suspect_operation({Errc::kSystem, "no route"}, kStart - FailureDetector::kGrace);
    detector.suspect(2, "silent", LinkEnd::kSilent, kStart - FailureDetector::kGrace);
    detector.suspect(1, "bad bytes", bad, kStart);
  }
  SECTION("before another end") {
    detector.suspect(1, "bad bytes", bad, kStart);
    detector.suspect(GENERATE(1, 2), "its tcp connection ended", LinkEnd::kClosed, kStart);
  }
  REQUIRE(detector.deadline());
  CHECK(*detector.deadline() <= kStart);
  for (const TimePoint now : {kStart, kStart + FailureDetector::kGrace}) {
    const auto error = detector.verdict(now);
    REQUIRE(error);
    CHECK(error->ranks == std::vector<int>{1});
    CHECK(error->cause == "bad bytes");
    CHECK(error->link == bad);
  }
}

TEST_CASE("what says more about a rank takes the place of a connection that was only closed, and not the reverse") {
  const LinkEnd end = GENERATE(LinkEnd::kSilent, LinkEnd::kLargeSilent, LinkEnd::kUnfinished);
  const bool turned = GENERATE(false, true);
  FailureDetector detector(kHosts);
  detector.suspect(1, "first", turned ? LinkEnd::kClosed : end, kStart);
  detector.suspect(1, "second", turned ? end : LinkEnd::kClosed, kStart + milliseconds(500));
  CHECK(detector.deadline() == kStart + FailureDetector::kGrace);
  CHECK(detector.verdict(kStart + FailureDetector::kGrace)->link == end);
}

TEST_CASE("another rank's end does not hide what this rank has seen and waits to say") {
  const LinkEnd end = GENERATE(LinkEnd::kSilent, LinkEnd::kUnfinished, LinkEnd::kTampered, LinkEnd::kMalformed);
  FailureDetector detector(kHosts);
  CHECK_FALSE(detector.knows_better({.code = Errc::kRankLost}));
  detector.suspect(2, "its tcp connection ended", LinkEnd::kClosed, kStart);
  CHECK_FALSE(detector.knows_better({.code = Errc::kRankLost}));
  detector.suspect(1, "seen here", end, kStart);
  const auto own = detector.knows_better({.code = Errc::kRankLost, .link = LinkEnd::kClosed});
  REQUIRE(own);
  CHECK(own->ranks == std::vector<int>{1});
  CHECK(own->link == end);
  CHECK_FALSE(detector.knows_better({.code = Errc::kRankLost, .link = end}));
  // The launcher has all reports.
  detector.take_event({.rank = 2, .cause = "killed by signal 9"}, kStart);
  CHECK_FALSE(detector.knows_better({.code = Errc::kRankLost}));
}

TEST_CASE("the first word of the launcher stays") {
  FailureDetector detector(kHosts);
  detector.take_event({.rank = 1, .cause = "first"}, kStart);
  detector.take_event({.rank = 2, .cause = "second"}, kStart);
  detector.launcher_gone({Errc::kSystem, "end of file"}, 0);
  CHECK(detector.verdict(kStart)->cause == "first");
}

TEST_CASE("a rank that exits with 0: left if it said so, RankLeft if not") {
  FailureDetector detector(kHosts);
  detector.take_event({.kind = Kind::kRankLeft, .rank = 1, .host = "node0"}, kStart);
  CHECK_FALSE(detector.verdict(kStart + milliseconds(10)));
  SECTION("its word arrives through the leader") {
    detector.left(1);
    CHECK_FALSE(detector.deadline());
    detector.take_event({.kind = Kind::kRankLeft, .rank = 1, .host = "node0"}, kStart);
    CHECK_FALSE(detector.deadline());
  }
  SECTION("it never said so") {
    const auto error = detector.verdict(kStart + FailureDetector::kGrace);
    REQUIRE(error);
    CHECK(error->code == Errc::kRankLeft);
    CHECK(error->cause == "exited with code 0");
  }
}

TEST_CASE("a rank that left is missed only while something needs it") {
  FailureDetector detector(kHosts);
  detector.left(2);
  detector.suspect(2, "its shm connection ended", LinkEnd::kClosed, kStart);
  detector.drop_suspicion(2);
  CHECK_FALSE(detector.deadline());
  detector.suspect(2, "its shm connection ended", LinkEnd::kClosed, kStart);
  const auto error = detector.verdict(kStart + FailureDetector::kGrace);
  REQUIRE(error);
  CHECK(error->code == Errc::kRankLeft);
  CHECK(has(error->message, "left the job while others still needed it"));
}

TEST_CASE("a silent leader is named before the peer that may have gone because of it, unless it answers or has ended") {
  FailureDetector detector(kHosts);
  detector.suspect_silent_leader(2, kStart);
  detector.suspect(2, "its shm connection ended", LinkEnd::kClosed, kStart);
  const TimePoint due = kStart + FailureDetector::kGrace;
  SECTION("it stays silent") {
    CHECK(detector.verdict(due)->code == Errc::kTimeout);
    CHECK(detector.verdict(due)->ranks == std::vector<int>{0, 2});
    CHECK(has(detector.verdict(due)->message, "did not answer for 1.0 s"));
  }
  SECTION("it answers") {
    detector.drop_suspicion(0);
    CHECK(detector.suspects(2));
    CHECK(detector.verdict(due)->code == Errc::kRankLost);
    CHECK(detector.verdict(due)->ranks == std::vector<int>{2});
  }
  SECTION("its connection ends") {
    detector.suspect(0, "its control connection ended", LinkEnd::kClosed, kStart);
    CHECK(detector.verdict(due)->code == Errc::kRankLost);
    CHECK(detector.verdict(due)->ranks == std::vector<int>{0});
  }
}

TEST_CASE("a rank that is named wins over the operation that failed because of it") {
  FailureDetector detector(kHosts);
  detector.suspect_operation({Errc::kSystem, "connection reset"}, kStart);
  CHECK(detector.verdict(kStart + FailureDetector::kGrace)->code == Errc::kSystem);
  // This holds however long this rank could not look, because the failed operation alone does not show the cause.
  detector.suspect(1, "its tcp connection ended", LinkEnd::kClosed, kStart + milliseconds(200));
  CHECK(detector.deadline() == kStart + FailureDetector::kGrace);
  const auto error = detector.verdict(kStart + FailureDetector::kGrace);
  CHECK(error->code == Errc::kRankLost);
  CHECK(error->ranks == std::vector<int>{1});
  CHECK_FALSE(error->usable);
}

TEST_CASE("the launcher's end and its order to stop") {
  FailureDetector gone(kHosts);
  gone.launcher_gone({Errc::kSystem, "end of file"}, 2);
  const auto error = gone.verdict(kStart);
  REQUIRE(error);
  CHECK(error->code == Errc::kAborted);
  // The other ranks hear this from this rank, and may still have their connections.
  CHECK(error->ranks == std::vector<int>{2});
  CHECK(error->host == "node1");
  CHECK(has(error->message, "rank 2 (node1) has lost its connection to the launcher, so the job ends: end of file"));
  FailureDetector without(kHosts);
  without.launcher_gone(Status(ErrorInfo{.code = Errc::kRankLost, .ranks = {0}, .cause = "its process ended"}), 2);
  CHECK(without.verdict(kStart)->code == Errc::kRankLost);
  CHECK(without.verdict(kStart)->ranks == std::vector<int>{0});
  FailureDetector stopped(kHosts);
  stopped.take_event({.kind = Kind::kStopAsked, .cause = "Ctrl-C"}, kStart);
  CHECK_FALSE(stopped.verdict(kStart + FailureDetector::kGrace));  // the job leaves in good order
}

TEST_CASE("a cause of any length is cut") {
  FailureDetector detector(kHosts);
  detector.take_event({.rank = 1, .cause = std::string(10 << 20, 'x')}, kStart);
  CHECK(detector.verdict(kStart)->message.size() < 20000);
}

}  // namespace
}  // namespace distrun::engine
