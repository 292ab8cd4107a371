// Which worker has which rank, and on which host it runs.
#include "launcher/job/ranks/membership.h"

#include <catch2/catch_test_macros.hpp>

#include "test/unit/launcher/job/job_parts.h"

namespace distrun::launcher {
namespace {

TEST_CASE("the first membership gives worker n rank n") {
  const Membership members(assignment_of({"a", "b"}));
  REQUIRE(members.size() == 4);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(members.rank_of(members.worker_of(rank)) == rank);
    CHECK(members.host_of(rank) == static_cast<std::size_t>(rank / 2));
  }
  CHECK(members.host_name(1) == "a");
  CHECK(members.host_name(2) == "b");
  CHECK(members.ranks_on(1) == std::vector<int>{2, 3});
  CHECK(members.ranks_on(2).empty());
  CHECK(members.workers_of({3, 1}) == std::vector<int>{3, 1});
}

TEST_CASE("workers of no membership have no rank") {
  const Membership members(assignment_of({"a"}));
  CHECK_FALSE(members.rank_of(WorkerId{2}));
  CHECK_FALSE(members.rank_of(WorkerId{-1}));
  CHECK_FALSE(Membership().rank_of(WorkerId{0}));
}

}  // namespace
}  // namespace distrun::launcher
