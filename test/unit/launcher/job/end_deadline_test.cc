#include "launcher/job/agents/end_deadline.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {
using std::chrono::seconds;

const TimePoint kFirst = TimePoint() + seconds(100);

TEST_CASE("an agent that was told nothing may be silent for ever") {
  EndDeadline deadline;
  CHECK_FALSE(deadline.end(std::nullopt));
  deadline.alive(kFirst);
  CHECK_FALSE(deadline.end(std::nullopt));
}

TEST_CASE("after the time to kill it is given up, unless it says something") {
  EndDeadline deadline;
  CHECK(deadline.end(kFirst) == kFirst + EndDeadline::kLimit);
  deadline.alive(kFirst - seconds(5));
  CHECK(deadline.end(kFirst) == kFirst + EndDeadline::kLimit);
  deadline.alive(kFirst + seconds(3));
  CHECK(deadline.end(kFirst) == kFirst + seconds(3) + EndDeadline::kLimit);
}

TEST_CASE("when all is done, what carries the agent has as long to end") {
  EndDeadline deadline;
  deadline.done(kFirst);
  CHECK(deadline.end(std::nullopt) == kFirst + EndDeadline::kLimit);
  deadline.alive(kFirst + seconds(9));
  CHECK(deadline.end(kFirst + seconds(9)) == kFirst + EndDeadline::kLimit);
}

}  // namespace
}  // namespace distrun::launcher
