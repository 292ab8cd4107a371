#include "runtime/engine/agreement/membership.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::engine {
namespace {

TEST_CASE("sets get numbers that never come again, from where the process has them") {
  std::atomic<int> next = 5;
  Membership members(3, {}, &next);
  CHECK(members.members(0) == std::vector{0, 1, 2});
  CHECK(members.add_set({0, 2}, true) == 5);
  CHECK(members.position(2, 5) == 1);
  CHECK_FALSE(members.position(1, 5));
  CHECK(members.is_members_only(5));
  members.remove_set(5);
  CHECK_FALSE(members.has_set(5));
  CHECK_FALSE(members.is_members_only(5));
  CHECK(members.add_set({0}, false) == 6);
  CHECK(next == 7);
}

TEST_CASE("ranks of a set are named once each, in order, and exist") {
  const Membership members(3, {}, nullptr);
  CHECK(members.are_ranks({0, 2}));
  for (const std::vector<int>& wrong : {std::vector<int>{}, {2, 0}, {1, 1}, {-1}, {3}}) {
    CHECK_FALSE(members.are_ranks(wrong));
  }
}

TEST_CASE("a rank leaves once, then drains once") {
  Membership members(2, {}, nullptr);
  CHECK_FALSE(members.drained(1));
  CHECK(members.leave(1));
  CHECK_FALSE(members.leave(1));
  CHECK(members.any_left());
  CHECK(members.left_of({0, 1}) == std::vector{1});
  CHECK(members.drained(1));
  CHECK_FALSE(members.drained(1));
  CHECK_FALSE(members.all_drained());
  CHECK((members.leave(0) && members.drained(0)));
  CHECK(members.all_drained());
}

}  // namespace
}  // namespace distrun::engine
