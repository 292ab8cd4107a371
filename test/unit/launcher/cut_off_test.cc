// Ranks that have lost their connection to the rendezvous, and run on.
#include "launcher/job/cut_off.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Told = std::vector<std::pair<int, std::string>>;

const TimePoint kStart = TimePoint{} + std::chrono::hours(1);

TEST_CASE("a rank whose connection ended is told of once, unless its end is heard of soon") {
  CutOff ranks;
  CHECK_FALSE(ranks.deadline());
  ranks.disconnected(5, "reset", kStart);
  ranks.disconnected(6, "closed", kStart + Duration(1));
  ranks.disconnected(7, "closed", kStart);
  CHECK(ranks.deadline() == kStart + CutOff::kNews);
  CHECK(ranks.take(kStart + CutOff::kNews - Duration(1)).empty());
  ranks.explained(7);
  ranks.explained(8);
  CHECK(ranks.take(kStart + CutOff::kNews) == Told{{5, "reset"}});
  CHECK(ranks.deadline() == kStart + CutOff::kNews + Duration(1));
  CHECK(ranks.take(kStart + 2 * CutOff::kNews) == Told{{6, "closed"}});
  CHECK(ranks.take(kStart + 3 * CutOff::kNews).empty());
  CHECK_FALSE(ranks.deadline());
}

}  // namespace
}  // namespace distrun::launcher
