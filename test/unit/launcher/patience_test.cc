#include "launcher/job/patience.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {
using std::chrono::seconds;

const TimePoint kStart = TimePoint() + seconds(100);

TEST_CASE("an agent that was told nothing may be silent for ever") {
  Patience patience;
  CHECK_FALSE(patience.end(std::nullopt));
  patience.heard(kStart);
  CHECK_FALSE(patience.end(std::nullopt));
}

TEST_CASE("after the time to kill it is given up, unless it says something") {
  Patience patience;
  CHECK(patience.end(kStart) == kStart + Patience::kLimit);
  patience.heard(kStart - seconds(5));
  CHECK(patience.end(kStart) == kStart + Patience::kLimit);
  patience.heard(kStart + seconds(3));
  CHECK(patience.end(kStart) == kStart + seconds(3) + Patience::kLimit);
}

TEST_CASE("when all is done, what carries the agent has as long to end") {
  Patience patience;
  patience.done(kStart);
  CHECK(patience.end(std::nullopt) == kStart + Patience::kLimit);
  patience.heard(kStart + seconds(9));
  CHECK(patience.end(kStart + seconds(9)) == kStart + Patience::kLimit);
}

}  // namespace
}  // namespace distrun::launcher
