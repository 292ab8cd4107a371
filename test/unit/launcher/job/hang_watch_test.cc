// Which ranks the launcher asks for their state, and how long it waits for the answers.
#include "launcher/job/ranks/hang_watch.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kHangStart{};

net::RankWait wait_of(std::string what, std::vector<int> waiting, std::vector<int> missing) {
  return {.what = std::move(what), .waiting = std::move(waiting), .missing = std::move(missing)};
}

TEST_CASE("those that are missed are asked, and one of those that wait") {
  HangWatch watch;
  CHECK(watch.waits(0, {wait_of("x", {1, 2, 3}, {0, 4})}, kHangStart) == std::vector<int>{0, 1, 4});
  CHECK(watch.deadline() == kHangStart + HangWatch::kAnswerTime);
  CHECK(watch.take(kHangStart, {}) == std::nullopt);
}

TEST_CASE("a wait is looked at once, and again when ranks wait anew") {
  HangWatch watch;
  REQUIRE_FALSE(watch.waits(0, {wait_of("x", {1}, {0})}, kHangStart).empty());
  REQUIRE(watch.take(kHangStart + seconds(2), {}).has_value());
  CHECK(watch.waits(0, {wait_of("x", {1}, {0})}, kHangStart + seconds(60)).empty());
  CHECK(watch.waits(0, {wait_of("y", {1}, {0})}, kHangStart + seconds(60)).empty());  // already seen
  CHECK(watch.waits(0, {wait_of("y", {1}, {0, 2})}, kHangStart + seconds(60)) == std::vector<int>{2});
  CHECK(watch.waits(0, {}, kHangStart + seconds(61)).empty());
  CHECK(watch.facts().empty());
  CHECK(watch.waits(0, {wait_of("x", {1}, {0})}, kHangStart + seconds(80)) == std::vector<int>{0, 1});
}

TEST_CASE("the end of one rank's wait is not that of another's") {
  HangWatch watch;
  (void)watch.waits(0, {wait_of("x", {1}, {2})}, kHangStart);
  (void)watch.waits(1, {wait_of("", {1}, {0})}, kHangStart);
  CHECK(watch.waits(1, {}, kHangStart).empty());
  REQUIRE(watch.facts().waits.size() == 1);
  CHECK(watch.facts().waits[0].what == "x");
  CHECK(watch.waits(0, {}, kHangStart).empty());
  CHECK(watch.facts().empty());
}

TEST_CASE("the round is over when all have answered") {
  HangWatch watch;
  (void)watch.waits(0, {wait_of("x", {1}, {0})}, kHangStart);
  watch.answered(1, {.view = net::ProgramState::View::kSeen, .operation = "x"});
  watch.answered(7, {});  // the launcher has not asked this rank
  CHECK(watch.take(kHangStart + milliseconds(1), {}) == std::nullopt);
  watch.cannot(0, "ended");
  const auto views = watch.take(kHangStart + milliseconds(2), {});
  REQUIRE(views.has_value());
  REQUIRE(views->size() == 2);
  CHECK((*views)[0].missed);
  CHECK((*views)[0].note == "ended");
  CHECK_FALSE((*views)[1].missed);
  CHECK((*views)[1].state->operation == "x");
  CHECK(watch.deadline() == std::nullopt);
  CHECK(watch.take(kHangStart + seconds(10), {}) == std::nullopt);
  CHECK(watch.facts().views.size() == 2);
}

TEST_CASE("nobody waits longer than two seconds for a rank that is silent") {
  HangWatch watch;
  (void)watch.waits(0, {wait_of("x", {1}, {0})}, kHangStart);
  watch.answered(1, {});
  CHECK(watch.take(kHangStart + milliseconds(1999), {}) == std::nullopt);
  const auto views = watch.take(kHangStart + seconds(2), {});
  REQUIRE(views.has_value());
  CHECK((*views)[0].note.find("2 s") != std::string::npos);
  watch.answered(0, {});  // too late
  CHECK(watch.take(kHangStart + seconds(3), {}) == std::nullopt);
}

TEST_CASE("a rank that is silent since its process cannot run is said to be so") {
  HangWatch watch;
  (void)watch.look_at({0, 1, 2, 3}, kHangStart);
  const auto views = watch.take(kHangStart + seconds(2), {{0, 'T'}, {1, 'D'}, {2, 'S'}});
  REQUIRE(views.has_value());
  CHECK((*views)[0].note == "stopped (T: by a signal)");
  CHECK((*views)[1].note == "blocked in the kernel (D: by a disk, a network file system or a driver)");
  CHECK((*views)[2].note == "silent: no answer came within 2 s");
  CHECK((*views)[3].note == (*views)[2].note);
}

TEST_CASE("what the user asks for is shown, and is no part of the report of a good job") {
  HangWatch watch;
  CHECK(watch.look_at({0, 1, 2}, kHangStart) == std::vector<int>{0, 1, 2});
  for (int rank = 0; rank < 3; ++rank) watch.answered(rank, {});
  REQUIRE(watch.take(kHangStart, {}).has_value());
  CHECK(watch.facts().empty());
  CHECK(watch.look_at({0}, kHangStart + seconds(5)) == std::vector<int>{0});
}

TEST_CASE("SIGQUIT to many processes of a job is one request, and the last look does not depend on it") {
  HangWatch watch;
  CHECK_FALSE(watch.look_at({0}, kHangStart).empty());
  watch.answered(0, {});
  REQUIRE(watch.take(kHangStart, {}).has_value());
  CHECK(watch.look_at({0}, kHangStart + std::chrono::milliseconds(999)).empty());
  CHECK_FALSE(watch.take(kHangStart + seconds(1), {}).has_value());
  CHECK_FALSE(watch.look_at({0}, kHangStart + seconds(1)).empty());
  CHECK(watch.is_last_check());
  CHECK_FALSE(watch.look_at({0}, kHangStart + seconds(1)).empty());
}

TEST_CASE("only the exception of a rank that others wait for explains a wait") {
  HangWatch watch;
  (void)watch.waits(0, {wait_of("x", {1}, {0})}, kHangStart);
  watch.answered(1, {.exception = "StopTraining: enough"});
  CHECK(watch.exceptions().empty());
  watch.answered(0, {.exception = "ValueError: bad", .raised_at = {.file = "a.py", .line = 3}});
  REQUIRE(watch.exceptions().size() == 1);  // before the answers are taken
  REQUIRE(watch.take(kHangStart, {}).has_value());
  REQUIRE(watch.exceptions().size() == 1);
  CHECK(watch.exceptions()[0].rank == 0);
  CHECK(watch.exceptions()[0].text == "ValueError: bad");
  CHECK(watch.exceptions()[0].raised_at.line == 3);
  // Later another wait shows that rank 1 is missed too.
  (void)watch.waits(0, {wait_of("y", {0}, {1})}, kHangStart);
  CHECK(watch.exceptions().size() == 2);
  CHECK(watch.waits(0, {}, kHangStart).empty());
  CHECK(watch.exceptions().empty());
}

TEST_CASE("what is seen before a limit of time ends the job is part of its report") {
  HangWatch watch;
  CHECK(watch.is_last_check());
  CHECK_FALSE(watch.is_last_check());
  (void)watch.look_at({0}, kHangStart);
  watch.answered(0, {.exception = "ValueError: bad"});
  REQUIRE(watch.take(kHangStart, {}).has_value());
  REQUIRE(watch.facts().views.size() == 1);
  CHECK(watch.facts().views[0].state->exception == "ValueError: bad");
}

}  // namespace
}  // namespace distrun::launcher
