// Ranks that have lost their connection to the rendezvous, and run on.
#include "launcher/job/cut_off.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Told = std::vector<std::pair<int, std::string>>;

const TimePoint kLost = TimePoint{} + std::chrono::hours(1);

TEST_CASE("a rank whose connection ended is told of once, unless its end is heard of soon") {
  CutOff ranks;
  CHECK_FALSE(ranks.deadline());
  ranks.disconnected(5, "reset", kLost);
  ranks.disconnected(6, "closed", kLost + Duration(1));
  ranks.disconnected(7, "closed", kLost);
  CHECK(ranks.deadline() == kLost + CutOff::kNews);
  CHECK(ranks.take(kLost + CutOff::kNews - Duration(1)).empty());
  ranks.explained(7);
  ranks.explained(8);
  CHECK(ranks.take(kLost + CutOff::kNews) == Told{{5, "reset"}});
  CHECK(ranks.deadline() == kLost + CutOff::kNews + Duration(1));
  CHECK(ranks.take(kLost + 2 * CutOff::kNews) == Told{{6, "closed"}});
  CHECK(ranks.take(kLost + 3 * CutOff::kNews).empty());
  CHECK_FALSE(ranks.deadline());
}

}  // namespace
}  // namespace distrun::launcher
