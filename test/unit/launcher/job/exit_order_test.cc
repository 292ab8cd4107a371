#include "launcher/job/ranks/exit_order.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

RankExited failed(int rank) { return {.rank = rank, .exit_code = 1}; }

TEST_CASE("an exit may follow from that of a rank whose connection ended before", "[exit_order]") {
  ExitOrder order(3);
  order.disconnected(1, 1);
  order.exited(0, 2);
  CHECK(order.may_follow(0));
  CHECK_FALSE(order.may_follow(1));
  order.exited(1, 3);
  CHECK_FALSE(order.may_follow(0));
}

TEST_CASE("ends that are seen in one round have no order", "[exit_order]") {
  ExitOrder order(2);
  order.disconnected(1, 1);
  order.exited(0, 1);
  CHECK_FALSE(order.may_follow(0));
}

TEST_CASE("the end of a rank that misses another follows from that, in whichever round", "[exit_order]") {
  ExitOrder order(3);
  order.misses(0);
  for (const int rank : {0, 1, 2}) order.disconnected(rank, 1);
  order.exited(0, 1);
  order.exited(2, 1);
  CHECK(order.may_follow(0));
  CHECK_FALSE(order.may_follow(2));
  order.exited(1, 2);
  CHECK(order.may_follow(0));
  CHECK(order.is_missing(0));
  order.no_cause_found();
  CHECK_FALSE(order.may_follow(0));
}

TEST_CASE("the first cause is the kept failure that follows from no other", "[exit_order]") {
  ExitOrder order(3);
  order.disconnected(2, 1);
  order.exited(0, 2);
  order.hold(failed(0));
  CHECK(order.holds_any());
  CHECK_FALSE(order.first_cause());
  SECTION("the awaited rank has ended well") { order.exited(2, 3); }
  SECTION("the awaited rank runs on") { order.runs_on(2); }
  REQUIRE(order.first_cause());
  CHECK(order.first_cause()->rank == 0);
}

}  // namespace
}  // namespace distrun::launcher
