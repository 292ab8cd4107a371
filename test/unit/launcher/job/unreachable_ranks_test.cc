// Ranks that have lost their connection to the rendezvous but still run.
#include "launcher/job/ranks/unreachable_ranks.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Reported = std::vector<std::pair<int, std::string>>;

const TimePoint kLost = TimePoint{} + std::chrono::hours(1);

TEST_CASE("a rank whose connection ended is reported once, unless its end is known soon") {
  UnreachableRanks ranks;
  CHECK_FALSE(ranks.deadline());
  ranks.disconnected(5, "reset", kLost);
  ranks.disconnected(6, "closed", kLost + Duration(1));
  ranks.disconnected(7, "closed", kLost);
  CHECK(ranks.deadline() == kLost + UnreachableRanks::kLimit);
  CHECK(ranks.take(kLost + UnreachableRanks::kLimit - Duration(1)).empty());
  ranks.explained(7);
  ranks.explained(8);
  CHECK(ranks.take(kLost + UnreachableRanks::kLimit) == Reported{{5, "reset"}});
  CHECK(ranks.deadline() == kLost + UnreachableRanks::kLimit + Duration(1));
  CHECK(ranks.take(kLost + 2 * UnreachableRanks::kLimit) == Reported{{6, "closed"}});
  CHECK(ranks.take(kLost + 3 * UnreachableRanks::kLimit).empty());
  CHECK_FALSE(ranks.deadline());
}

}  // namespace
}  // namespace distrun::launcher
