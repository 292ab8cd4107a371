#include "runtime/engine/monitoring/watchdog.h"

#include <catch2/catch_test_macros.hpp>

#include "test/support/text.h"

namespace distrun::engine {
namespace {

using std::chrono::seconds;

TimePoint at(int second) { return TimePoint{} + seconds(1000 + second); }
using test::has;

WatchdogOptions options(int rank, int shutdown = 0) {
  return {.rank = rank, .hosts = {"node0", "node0", "node1"}, .warning = seconds(10), .shutdown = seconds(shutdown)};
}

OldestWork work(bool running) { return {.what = "allreduce 'x'", .tensor = "x", .since = at(0), .running = running}; }

TEST_CASE("nothing in flight: no timer, no question") {
  Watchdog dog(options(0));
  CHECK_FALSE(dog.next(std::nullopt));
  CHECK(dog.check(std::nullopt, at(1000)).ping.empty());
}

TEST_CASE("the leader asks everybody, the others ask the leader") {
  Watchdog leader(options(0));
  CHECK(*leader.next(work(true)) == at(10));
  CHECK(leader.check(work(true), at(9)).ping.empty());
  CHECK(leader.check(work(true), at(10)).ping == std::vector<int>{1, 2});
  CHECK(*leader.next(work(true)) == at(11));
  Watchdog member(options(2));
  CHECK(member.check(work(false), at(10)).ping == std::vector<int>{0});
}

// Checks every 10 s, the time between warnings, while `hanging` hangs. Returns the seconds at which it warned.
std::vector<int> warned_at(Watchdog& dog, const std::optional<OldestWork>& hanging, const std::vector<int>& answering,
                           int until, bool leader_warned = false) {
  std::vector<int> seconds_of;
  for (int second = 10; second < until; second += 10) {
    CHECK_FALSE(dog.check(hanging, at(second)).ping.empty());
    if (leader_warned) dog.leader_warns();
    for (const int rank : answering) dog.answered(rank);
    if (!dog.check(hanging, at(second + 1)).warnings.empty()) seconds_of.push_back(second);
  }
  return seconds_of;
}

TEST_CASE("who does not answer is named, again and again, but ever less often") {
  Watchdog dog(options(0));
  dog.check(work(true), at(10));
  dog.answered(1);
  const auto actions = dog.check(work(true), at(11));
  REQUIRE(actions.warnings.size() == 1);
  CHECK(has(actions.warnings[0], "allreduce 'x' has been running for 11.0 s; rank 2 (node1) did not answer"));
  CHECK(actions.abort.ok());
  Watchdog again(options(0));
  CHECK(warned_at(again, work(true), {1}, 2000) == std::vector{10, 20, 40, 80, 160, 320, 640, 1240, 1840});
  // A check that is late only by the loop's own delay still warns.
  Watchdog jitter(options(0));
  jitter.check(work(true), at(10) + std::chrono::milliseconds(3));
  CHECK(jitter.check(work(true), at(12)).warnings.size() == 1);
  jitter.check(work(true), at(20) + std::chrono::milliseconds(4));
  CHECK(jitter.check(work(true), at(22)).warnings.size() == 1);
}

TEST_CASE("what is new in a hang is told at once: a rank that no warning has named yet, another operation") {
  Watchdog dog(options(0));
  CHECK(warned_at(dog, work(true), {1, 2}, 70) == std::vector{10, 20, 40});
  const auto ask = [&](const OldestWork& hanging, int second, const std::vector<int>& answering) {
    dog.check(hanging, at(second));
    for (const int rank : answering) dog.answered(rank);
    return dog.check(hanging, at(second + 1)).warnings;
  };
  CHECK(has(ask(work(true), 70, {2}).at(0), "rank 1 (node0) did not answer"));
  CHECK(ask(work(true), 80, {1, 2}).empty());
  CHECK(ask(work(true), 90, {2}).empty());  // already known
  CHECK(has(ask(work(true), 100, {1}).at(0), "rank 2 (node1) did not answer"));
  OldestWork other = work(true);
  other.since = at(101);
  CHECK(has(ask(other, 111, {2}).at(0), "has been running for 11.0 s; rank 1 (node0)"));
}

TEST_CASE("of two operations that hang, the younger is named soon after the older one has completed") {
  Watchdog dog(options(0));
  CHECK(warned_at(dog, work(true), {1, 2}, 1300) == std::vector{10, 20, 40, 80, 160, 320, 640, 1240});
  const auto next_warned_at = [&dog](const auto& oldest, int from, int until) {
    std::vector<int> warned;
    for (int second = from; second < until; second += 10) {
      const OldestWork now{.what = oldest(second), .since = at(5), .running = true};
      dog.check(now, at(second));
      for (const int rank : {1, 2}) dog.answered(rank);
      if (!dog.check(now, at(second + 1)).warnings.empty()) warned.push_back(second);
    }
    return warned;
  };
  // If another operation is the oldest each time, the operations are slow and none hangs.
  const auto slow = [](int second) { return "allreduce '" + std::to_string(second) + "'"; };
  CHECK(next_warned_at(slow, 1300, 2000) == std::vector{1840});
  const auto hangs = [](int) { return std::string("allreduce 'y'"); };
  CHECK(next_warned_at(hangs, 2000, 3300) == std::vector{2010, 2610, 3210});
}

TEST_CASE("a member says nothing about what the leader tells, and what nobody else tells") {
  Watchdog leader_warned(options(2));
  CHECK(warned_at(leader_warned, work(true), {0}, 2000, true).empty());
  leader_warned.check(work(true), at(2000));  // the leader is silent now
  CHECK(has(leader_warned.check(work(true), at(2001)).warnings.at(0), "rank 0 (node0) did not answer"));
  OldestWork without_leader = work(true);  // in a process set without the leader, whose own work hangs too
  without_leader.with_leader = false;
  Watchdog other(options(2));
  CHECK(warned_at(other, without_leader, {0}, 100, true) == std::vector{10, 20, 40, 80});
  Watchdog alone(options(2));  // or the leader's part of the operation has completed
  CHECK(warned_at(alone, work(true), {0}, 100) == std::vector{10, 20, 40, 80});
  Watchdog waiting(options(2));  // the coordinator reports these, unless it is silent
  CHECK(warned_at(waiting, work(false), {0}, 100).empty());
  Watchdog cut_off(options(2));
  CHECK(warned_at(cut_off, work(false), {}, 100) == std::vector{10, 20, 30, 50, 90});

  Watchdog leader(options(0));
  CHECK(leader.warns_itself(work(true), at(9)));  // the rank that asks may have begun a little earlier
  CHECK_FALSE(leader.warns_itself(work(true), at(1)));
  CHECK_FALSE(leader.warns_itself(work(false), at(100)));
  CHECK_FALSE(leader.warns_itself(std::nullopt, at(100)));
}

TEST_CASE("what runs on a GPU may wait for the GPU, and the warning says so") {
  Watchdog dog(options(0));
  OldestWork on_gpu = work(true);
  on_gpu.on_gpu = true;
  dog.check(on_gpu, at(10));
  dog.answered(1);
  dog.answered(2);
  CHECK(dog.check(on_gpu, at(11)).warnings.at(0) ==
        "allreduce 'x' has been running for 11.0 s, or waits for earlier work of this GPU; all other ranks answer");
}

TEST_CASE("no warnings are wanted: none comes of a question at the limit") {
  Watchdog dog({.rank = 0, .hosts = {"a", "b"}, .shutdown = seconds(5)});
  dog.check(work(true), at(5));
  const Watchdog::Actions end = dog.check(work(true), at(6));
  CHECK(end.warnings.empty());
  CHECK(end.abort.info().ranks == std::vector<int>{1});
}

TEST_CASE("a tensor that waits for ranks that answer is the coordinator's to report") {
  Watchdog dog(options(0, 5));
  dog.check(work(false), at(5));
  dog.answered(1);
  dog.answered(2);
  const auto actions = dog.check(work(false), at(6));
  CHECK(actions.warnings.empty());
  CHECK(actions.abort.ok());
}

TEST_CASE("at the limit an operation that runs ends the job, naming the silent ranks") {
  Watchdog dog(options(0, 15));
  dog.check(work(true), at(10));
  CHECK(dog.check(work(true), at(11)).abort.ok());
  CHECK(*dog.next(work(true)) == at(15));
  CHECK(dog.check(work(true), at(15)).ping.size() == 2);
  dog.answered(1);
  const Status abort = dog.check(work(true), at(16)).abort;
  REQUIRE_FALSE(abort.ok());
  CHECK(abort.code() == Errc::kTimeout);
  CHECK(abort.info().ranks == std::vector<int>{2});
  CHECK(abort.info().host == "node1");
  CHECK(abort.info().tensor == "x");
}

TEST_CASE("at the limit a silent leader ends the job on every member") {
  Watchdog dog(options(1, 15));
  dog.check(work(false), at(15));
  const Status abort = dog.check(work(false), at(16)).abort;
  REQUIRE_FALSE(abort.ok());
  CHECK(abort.info().ranks == std::vector<int>{0});
}

TEST_CASE("a member whose leader answers leaves it to the leader to say who is silent") {
  Watchdog dog(options(2, 15));
  dog.check(work(true), at(15));
  for (int second = 16; second < 18; ++second) {
    dog.answered(0);
    CHECK(dog.check(work(true), at(second)).abort.ok());
    CHECK(dog.check(work(true), at(second)).overdue);  // the member must ask again at once
  }
  dog.answered(0);
  const Status abort = dog.check(work(true), at(18)).abort;
  REQUIRE_FALSE(abort.ok());
  CHECK(abort.info().ranks.empty());
  CHECK_FALSE(has(abort.message(), "all other ranks"));
}

TEST_CASE("at the leader a member that is past the limit is enough, where somebody is silent") {
  Watchdog dog(options(0, 15));
  dog.asked(at(20), Watchdog::Asked::kOverdue);
  CHECK(dog.check(std::nullopt, at(20)).ping.size() == 2);
  dog.answered(2);
  const Status abort = dog.check(std::nullopt, at(21)).abort;
  REQUIRE_FALSE(abort.ok());
  CHECK(abort.info().ranks == std::vector<int>{1});
  CHECK(abort.info().host == "node0");
  CHECK(abort.info().tensor.empty());  // the leader does not know which operation of the member is late
}

TEST_CASE("a deadlock is one only if all ranks answer") {
  const Status all(ErrorInfo{.code = Errc::kTimeout, .message = "deadlock", .ranks = {0, 1, 2}});
  for (const bool answers : {true, false}) {
    Watchdog dog(options(0, 5));
    dog.end(all, true);
    CHECK(dog.check(work(false), at(5)).ping.size() == 2);
    dog.answered(1);
    if (answers) dog.answered(2);
    const Watchdog::Actions actions = dog.check(work(false), at(6));
    REQUIRE_FALSE(actions.abort.ok());
    CHECK(actions.deadlock == answers);
    CHECK(actions.abort.info().ranks.size() == (answers ? 3U : 1U));
  }
}

TEST_CASE("the coordinator's end waits for the answers, and names who gives none") {
  const Status stall(ErrorInfo{.code = Errc::kTimeout, .message = "'x' waits", .tensor = "x", .ranks = {1, 2}});
  for (const bool all_answer : {true, false}) {
    Watchdog dog(options(0, 15));
    dog.end(stall);
    CHECK(dog.check(work(false), at(15)).ping.size() == 2);
    dog.answered(1);
    if (all_answer) dog.answered(2);
    const Status abort = dog.check(work(false), at(16)).abort;
    CHECK(abort.info().tensor == "x");
    CHECK(abort.info().ranks == (all_answer ? std::vector<int>{1, 2} : std::vector<int>{2}));
    CHECK(has(abort.message(), "'x' waits"));
  }
}

TEST_CASE(
    "at the leader a join, a shutdown or a call is not ended by one missed answer, but by none for the whole limit") {
  const OldestWork join{.what = "join 'distrun.join'", .since = at(0)};
  // This call cannot start, because an earlier call hangs at a silent rank.
  const OldestWork call{.what = "adding a process set", .since = at(0)};
  for (const std::optional<OldestWork>& waiting : {std::optional(join), std::optional(call), {}}) {
    const bool here = waiting.has_value();
    Watchdog dog(options(0, 15));
    const auto late_by_a_second = [&](int second, bool answers) {
      if (!here) dog.asked(at(second), Watchdog::Asked::kWaitsOnly);
      CHECK(dog.check(waiting, at(second)).ping.size() == 2);
      dog.answered(2);
      const Watchdog::Actions actions = dog.check(waiting, at(second + 1));
      CHECK(has(actions.warnings.at(0), "rank 1 (node0) did not answer"));
      if (answers) dog.answered(1);
      return actions.abort;
    };
    for (int second = 100; second < 150; second += 10) CHECK(late_by_a_second(second, true).ok());
    for (int second = 150; second < 165; second += 10) CHECK(late_by_a_second(second, false).ok());
    const Status abort = late_by_a_second(170, false);
    REQUIRE_FALSE(abort.ok());
    CHECK(abort.info().ranks == std::vector<int>{1});
    CHECK_FALSE(abort.info().usable);
    CHECK(has(abort.message(), "did not answer for 21.0 s"));  // since 150, which is why it ends
  }
}

TEST_CASE("a member in a join ends with a silent leader when those do that have stalled") {
  Watchdog dog(options(1, 15));
  const OldestWork join{.what = "join 'distrun.join'", .since = at(0)};
  const Watchdog::Actions asks = dog.check(join, at(15));
  CHECK(asks.overdue);
  CHECK(asks.waits_only);
  const Status abort = dog.check(join, at(16)).abort;
  REQUIRE_FALSE(abort.ok());
  CHECK(abort.info().ranks == std::vector<int>{0});
}

TEST_CASE("a member tells the leader whether what is past the limit runs or only waits") {
  for (const bool running : {true, false}) {
    Watchdog dog(options(1, 15));
    const Watchdog::Actions asks = dog.check(work(running), at(15));
    CHECK(asks.overdue);
    CHECK(asks.waits_only == !running);
  }
}

TEST_CASE("who has left is not asked") {
  Watchdog dog(options(0, 15));
  dog.left(1);
  CHECK(dog.check(work(true), at(10)).ping == std::vector<int>{2});
}

TEST_CASE("a leader that has left is asked all the same: the others need the end of the log") {
  Watchdog dog(options(1, 15));
  dog.left(0);
  CHECK(dog.check(work(false), at(15)).ping == std::vector<int>{0});
  const Watchdog::Actions end = dog.check(work(false), at(16));
  REQUIRE_FALSE(end.abort.ok());
  CHECK(end.abort.info().ranks == std::vector<int>{0});
}

TEST_CASE("a member's question makes the leader look for others that are silent, once a second at most") {
  Watchdog dog(options(0));
  dog.asked(at(0));
  REQUIRE(dog.next(std::nullopt));
  CHECK(dog.check(std::nullopt, at(0)).ping.size() == 2);
  dog.answered(2);
  dog.asked(at(0));
  const auto actions = dog.check(std::nullopt, at(1));
  REQUIRE(actions.warnings.size() == 1);
  CHECK(has(actions.warnings[0], "rank 1 (node0) did not answer"));
  CHECK_FALSE(dog.next(std::nullopt));
}

TEST_CASE("only a limit, no warnings: asked at the limit, and again while a sound leader lets it wait") {
  Watchdog dog({.rank = 1, .hosts = {"a", "b"}, .shutdown = seconds(5)});
  CHECK(*dog.next(work(false)) == at(5));
  dog.check(work(false), at(5));
  dog.answered(0);
  CHECK(dog.check(work(false), at(6)).abort.ok());
  CHECK(*dog.next(work(false)) == at(10));
}

TEST_CASE("a time for which this rank stood still counts for nothing, also when it asked just before") {
  Watchdog dog(options(1, 30));
  CHECK(dog.check(work(false), at(10)).ping == std::vector<int>{0});
  dog.suspended({.from = at(10), .until = at(1010)});
  CHECK(*dog.next(work(false)) == at(1011));
  CHECK(dog.check(work(false), at(1010)).abort.ok());  // the answer may have arrived unread
  dog.answered(0);
  CHECK(dog.check(work(false), at(1011)).warnings.empty());
  CHECK(*dog.next(work(false)) == at(1020));
  CHECK(dog.check(work(false), at(1019)).ping.empty());
  dog.check(work(false), at(1020));
  dog.answered(0);
  CHECK(dog.check(work(false), at(1021)).abort.ok());
  const auto limit = dog.check(work(false), at(1030));
  CHECK(limit.overdue);
  CHECK(dog.check(work(false), at(1031)).abort.info().ranks == std::vector<int>{0});  // the leader really is gone
}

TEST_CASE("several stops count together, and none for what began after them") {
  Watchdog dog(options(0, 30));
  for (const int stop : {5, 105, 205}) dog.suspended({.from = at(stop), .until = at(stop + 95)});
  CHECK(*dog.next(work(true)) == at(3 * 95 + 10));
  OldestWork young = work(true);
  young.since = at(300);
  CHECK(*dog.next(young) == at(310));
  dog.check(std::nullopt, at(320));
  CHECK(*dog.next(work(true)) == at(10));  // nothing was in flight: forgotten
}

}  // namespace
}  // namespace distrun::engine
