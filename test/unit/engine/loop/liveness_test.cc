#include "runtime/engine/liveness.h"

#include <catch2/catch_test_macros.hpp>

#include "runtime/engine/protocol/ping_purpose.h"

namespace distrun::engine {
namespace {

using std::chrono::seconds;

WatchdogOptions options(int rank) {
  return {.rank = rank, .hosts = {"node0", "node0", "node1"}, .warning = seconds(10), .shutdown = seconds(60)};
}

const TimePoint kLongAgo = Clock::now() - seconds(5);

TEST_CASE("a process that was stopped sees a gap, one that waited for others does not") {
  Liveness liveness(options(1));
  const TimePoint now = Clock::now();
  CHECK_FALSE(liveness.see_clock(now + seconds(1)));
  const auto gap = liveness.see_clock(now + seconds(9));
  REQUIRE(gap);
  CHECK(gap->until - gap->from == seconds(8));
  liveness.waited(now + seconds(20));
  CHECK_FALSE(liveness.see_clock(now + seconds(21)));
  CHECK(liveness.next_look() == now + seconds(22));
}

TEST_CASE("a member that misses a peer asks the leader first, once") {
  Liveness liveness(options(1));
  const std::vector<LostPeer> peers{{.rank = 2, .backend = "tcp", .in_use = true}};
  CHECK(liveness.connections_ended(peers, std::nullopt, kLongAgo));
  CHECK_FALSE(liveness.connections_ended(peers, std::nullopt, kLongAgo));
  CHECK(liveness.verdict()->code == Errc::kTimeout);  // the leader is silent
  CHECK(liveness.answered(0, {.number = kPingClock}));
  const auto verdict = liveness.verdict();
  REQUIRE(verdict);
  CHECK(verdict->ranks == std::vector{2});
  CHECK(verdict->message.find("its tcp connection ended") != std::string::npos);
}

TEST_CASE("the leader asks nobody, and a lost control connection counts") {
  Liveness liveness(options(0));
  CHECK_FALSE(liveness.verdict());
  CHECK_FALSE(liveness.connections_ended({}, EndedLink{.peer = 1}, kLongAgo));
  REQUIRE(liveness.verdict());
  CHECK(liveness.verdict()->message.find("control connection") != std::string::npos);
}

TEST_CASE("how a connection ended is kept, in words too") {
  Liveness of_backend(options(0));
  of_backend.connections_ended(
      {{.rank = 2, .backend = "tcp", .end = LinkEnd::kSilent, .how = "nothing is acknowledged"}}, std::nullopt,
      kLongAgo);
  CHECK(of_backend.verdict()->link == LinkEnd::kSilent);
  CHECK(of_backend.verdict()->cause == "its tcp connection ended: nothing is acknowledged");
  Liveness of_control(options(0));
  of_control.connections_ended({}, EndedLink{.peer = 1, .end = LinkEnd::kTampered, .how = "a wrong tag"}, kLongAgo);
  CHECK(of_control.verdict()->link == LinkEnd::kTampered);
  CHECK(of_control.verdict()->cause == "its control connection ended: a wrong tag");
}

TEST_CASE("an operation that failed because of a rank names its host") {
  Liveness liveness(options(0));
  liveness.operation_failed(Status(ErrorInfo{.code = Errc::kProtocol, .message = "bad", .ranks = {2}}), kLongAgo);
  CHECK(liveness.verdict()->host == "node1");
}

TEST_CASE("a rank that left is missed only where something needs it") {
  Liveness liveness(options(0));
  liveness.left(2);
  CHECK(liveness.has_left(2));
  liveness.connections_ended({{.rank = 2, .backend = "tcp", .in_use = false}}, std::nullopt, kLongAgo);
  CHECK_FALSE(liveness.verdict());
  liveness.connections_ended({{.rank = 2, .backend = "tcp"}, {.rank = 2, .backend = "shm", .in_use = true}},
                             std::nullopt, kLongAgo);
  CHECK(liveness.verdict());
  liveness.drained(2);
  CHECK_FALSE(liveness.verdict());
}

TEST_CASE("an operation that failed without a rank to blame ends the job after a moment") {
  Liveness liveness(options(1));
  liveness.operation_failed({Errc::kSystem, "no route"}, Clock::now());
  CHECK_FALSE(liveness.verdict());
  CHECK(liveness.next_timer(std::nullopt));
  Liveness late(options(1));
  late.operation_failed({Errc::kSystem, "no route"}, kLongAgo);
  CHECK(late.verdict()->message == "no route");
}

TEST_CASE("pings are answered; the leader says whether it warns itself") {
  const TimePoint now = Clock::now();
  const OldestWork old{.what = "allreduce 'x'", .since = now - seconds(11), .running = true};
  Liveness leader(options(0));
  CHECK(leader.answer({.number = kPingAlive, .sent_ns = 7}, old, now).number == kPongWarns);
  CHECK(leader.answer({.number = kPingAlive, .sent_ns = 7}, std::nullopt, now).number == kPingAlive);
  CHECK(leader.answer({.number = kPingClock, .sent_ns = 7}, old, now).sent_ns == 7);
  CHECK(leader.answer({.number = kPingClock, .sent_ns = 7}, old, now).number == kPingClock);
  Liveness member(options(1));
  CHECK(member.answer({.number = kPingAlive}, old, now).number == kPingAlive);
  CHECK_FALSE(member.answered(0, {.number = kPongWarns}));
  CHECK_FALSE(member.answered(0, {.number = kPingAlive}));
}

TEST_CASE("a ping says that what runs is past the limit") {
  const TimePoint now = Clock::now();
  OldestWork old{.what = "allreduce 'x'", .since = now - seconds(61), .running = true};
  Liveness member(options(1));
  const auto runs = member.check(old, now);
  REQUIRE(runs.pings.size() == 1);
  CHECK(runs.pings[0].first == 0);
  CHECK(runs.pings[0].second.number == kPingOverdue);
  old.running = false;
  Liveness other(options(1));
  REQUIRE(other.check(old, now).pings.size() == 1);
  old.since = now - seconds(11);
  Liveness third(options(1));
  CHECK(third.check(old, now).pings.at(0).second.number == kPingAlive);
}

}  // namespace
}  // namespace distrun::engine
