// The coordinator's warnings about tensors and calls that wait, and how often it repeats them. While its own process is
// stopped, the time does not count.
#include <catch2/catch_test_macros.hpp>

#include "test/support/text.h"
#include "test/unit/engine/coordinator_options.h"

namespace distrun::engine {
namespace {

using std::chrono::seconds;

CoordinatorOptions limited_options(int world_size, int shutdown = 0) {
  CoordinatorOptions o = warning_options(world_size);
  o.stall_shutdown = seconds(shutdown);
  return o;
}

using test::has;

// The seconds up to `end` at which it warns. Like the loop, this ticks each timer when it is due.
std::vector<int> warned_at(Coordinator& c, int end) {
  std::vector<int> warned;
  for (auto due = c.next_tick(); due && *due <= at(end); due = c.next_tick()) {
    c.tick(*due);
    const std::size_t warnings = c.act().warnings.size();
    CHECK(warnings <= 1);
    if (warnings > 0) warned.push_back(static_cast<int>((*due - at(0)) / seconds(1)));
  }
  return warned;
}

const std::vector<int> kAnHour = {10, 20, 40, 80, 160, 320, 640, 1240, 1840, 2440, 3040};

TEST_CASE("what waits for an hour is told a few times, for each time as long again") {
  Coordinator c(limited_options(2));
  c.submitted(0, request("a"), at(0));
  CHECK(warned_at(c, 3600) == kAnHour);
}

TEST_CASE("so it is with a call") {
  Coordinator c(limited_options(2));
  c.called(0, {.kind = Call::Kind::kStopTimeline}, at(0));
  CHECK(warned_at(c, 3600) == kAnHour);
}

TEST_CASE("a call that is late later is told in its own time, together with those that are late for long") {
  Coordinator c(limited_options(4));
  const auto alone = [](std::vector<int> ranks) {
    return Call{.kind = Call::Kind::kAddSet, .ranks = std::move(ranks), .members_only = true};
  };
  c.called(0, alone({0, 1}), at(0));
  CHECK(warned_at(c, 100) == std::vector<int>{10, 20, 40, 80});
  c.called(2, alone({2, 3}), at(100));
  CHECK(*c.next_tick() == at(110));
  c.tick(at(110));
  const auto warnings = c.act().warnings;
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "ranks 2, 3"));
  CHECK(has(warnings[0], "ranks 0, 1"));
}

TEST_CASE("a call that another one has held up is told in its own time, not when that one would have been") {
  Coordinator c(limited_options(2));
  const Call stop = {.kind = Call::Kind::kStopTimeline};
  c.called(0, {.kind = Call::Kind::kStartTimeline, .path = "a"}, at(0));
  c.called(0, stop, at(1));
  CHECK(warned_at(c, 1000) == std::vector<int>{10, 20, 40, 80, 160, 320, 640});
  c.called(1, {.kind = Call::Kind::kStartTimeline, .path = "a"}, at(1000));
  CHECK(c.act().warnings.empty());
  CHECK(warned_at(c, 1100) == std::vector<int>{1010, 1020, 1040, 1080});
}

TEST_CASE("that reported tensors go on is told once, with the last of them") {
  Coordinator c(limited_options(2));
  for (const char* name : {"a", "b"}) c.submitted(0, request(name), at(0));
  c.tick(at(10));
  CHECK(c.act().warnings.size() == 1);
  c.submitted(0, request("young"), at(11));
  c.submitted(1, request("a"), at(12));
  CHECK(c.act().warnings.empty());
  c.submitted(1, request("b"), at(13));
  const auto warnings = c.act().warnings;
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == "allreduce 'a', allreduce 'b' continued after 13.0 s");
  c.submitted(1, request("young"), at(14));
  CHECK(c.act().warnings.empty());
}

TEST_CASE("what goes on is told no later than the next report of what does not") {
  Coordinator c(limited_options(2));
  for (int i = 0; i < 9; ++i) c.submitted(0, request("t" + std::to_string(i)), at(0));
  c.tick(at(10));
  CHECK(c.act().warnings.size() == 1);
  for (int i = 0; i < 8; ++i) c.submitted(1, request("t" + std::to_string(i)), at(11));
  CHECK(c.act().warnings.empty());
  c.tick(at(20));
  const auto warnings = c.act().warnings;
  REQUIRE(warnings.size() == 2);
  CHECK(has(warnings[0], "allreduce 't5' and 2 more continued after 11.0 s"));
  CHECK(has(warnings[1], "to submit allreduce 't8', 20.0 s after"));
}

TEST_CASE("a time for which the leader stood still counts for no warning and no limit") {
  Coordinator c(limited_options(2, 30));
  c.submitted(0, request("a"), at(0));
  c.called(0, {.kind = Call::Kind::kStopTimeline}, at(1));
  c.suspended({.from = at(5), .until = at(1005)});
  CHECK(*c.next_tick() == at(1010));
  c.tick(at(1009));
  const Actions quiet = c.act();
  CHECK(quiet.warnings.empty());
  CHECK(quiet.abort.ok());
  c.tick(at(1010));
  CHECK(has(c.act().warnings.at(0), "10.0 s after"));
  c.tick(at(1029));
  CHECK(c.act().abort.ok());
  c.tick(at(1030));  // the missing rank still does not come
  CHECK(c.act().abort.code() == Errc::kTimeout);
}

TEST_CASE("a limit that a call reaches by standing still alone is none; what came meanwhile begins at the end") {
  Coordinator c(limited_options(2, 30));
  c.called(0, {.kind = Call::Kind::kStopTimeline}, at(0));
  c.submitted(0, request("a"), at(99));
  c.suspended({.from = at(1), .until = at(100)});
  c.tick(at(128));
  CHECK(c.act().abort.ok());
  CHECK(*c.next_tick() == at(129));
  c.tick(at(129));
  CHECK(has(c.act().abort.message(), "stopping the timeline cannot end"));
}

TEST_CASE("one name that waits on two process sets is told with the set, so that the reports do not contradict") {
  Coordinator c(limited_options(3, 30));
  for (int r = 0; r < 3; ++r) c.called(r, {.kind = Call::Kind::kAddSet, .ranks = {0, 1}}, at(0));
  const int set = only<entry::MakeSet>(c.act()).at(0).set;
  for (int r = 0; r < 2; ++r) c.set_made(r, set, {});
  c.act();
  c.submitted(0, request("x", {4}, set), at(0));
  for (int r = 1; r < 3; ++r) c.submitted(r, request("x"), at(1));
  c.tick(at(11));
  const auto warnings = c.act().warnings;
  REQUIRE(warnings.size() == 1);
  const std::string of_set = "allreduce 'x' on process set 1 (ranks 0, 1 (node0))";
  CHECK(has(warnings[0], "waiting for rank 1 (node0) to submit " + of_set + ", 11.0 s after rank 0 (node0)"));
  CHECK(
      has(warnings[0], "waiting for rank 0 (node0) to submit allreduce 'x', 10.0 s after ranks 1 (node0), 2 (node1)"));
  c.tick(at(30));
  CHECK(has(c.act().abort.message(), of_set + " has waited 30.0 s for rank 1 (node0) to submit it"));
}

TEST_CASE("two process sets that wait for the same rank are two reports") {
  Coordinator c(limited_options(3));
  for (int r = 0; r < 3; ++r) c.called(r, {.kind = Call::Kind::kAddSet, .ranks = {0, 1}}, at(0));
  const int set = only<entry::MakeSet>(c.act()).at(0).set;
  for (int r = 0; r < 2; ++r) c.set_made(r, set, {});
  c.act();
  c.submitted(0, request("x", {4}, set), at(0));
  for (const int r : {0, 2}) c.submitted(r, request("y"), at(0));
  c.tick(at(10));
  const auto warnings = c.act().warnings;
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "to submit allreduce 'x' on process set 1"));
  CHECK(has(warnings[0], "to submit allreduce 'y', 10.0 s after ranks 0 (node0), 2 (node1)"));
}

}  // namespace
}  // namespace distrun::engine
