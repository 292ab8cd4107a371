// The fakes that other tests use keep the promises of their interfaces.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "test/support/fake_control_plane.h"
#include "test/support/fake_store.h"
#include "test/support/ranks.h"

namespace distrun::test {
namespace {

std::vector<std::byte> bytes_of(int value) { return {static_cast<std::byte>(value)}; }

TEST_CASE("run_ranks runs every rank and names the first that fails") {
  std::atomic<int> mask{0};
  run_ranks(5, [&](int rank) { mask |= 1 << rank; });
  CHECK(mask == 0b11111);

  FakeStore store;
  std::string text;
  try {
    run_ranks(3,
              [&](int rank) {
                if (rank == 1) EXPECT_EQ(rank, 7);
                (void)store.get("never", deadline_after(40));
              },
              {.on_failure = [&] {
                store.fail({Errc::kAborted, "a rank failed"});
              }});
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  CHECK(text.find("rank 1: ") == 0);
  CHECK(text.find("EXPECT_EQ(rank, 7) (1 against 7)") != std::string::npos);
}

TEST_CASE("the fake store hands values over, counts, times out and ends with its server") {
  FakeStore store;
  run_ranks(4, [&](int rank) {
    EXPECT_OK(store.set("rank" + std::to_string(rank), std::to_string(rank)));
    for (int other = 0; other < 4; ++other) {
      const auto value = store.get("rank" + std::to_string(other), deadline_after(30));
      EXPECT_OK(value);
      EXPECT_EQ(*value, std::to_string(other));
    }
    EXPECT_OK(store.add("count", rank));
  });
  CHECK(*store.add("count", 0) == 6);
  CHECK(store.get("nobody", deadline_after(0.01)).status().code() == Errc::kTimeout);
  run_ranks(2, [&](int rank) {
    if (rank == 0) return store.fail({Errc::kAborted, "the server is gone"});
    EXPECT_EQ(store.get("nobody", deadline_after(40)).status().code(), Errc::kAborted);
  });
  CHECK(store.set("late", "1").code() == Errc::kAborted);
}

TEST_CASE("the fake control plane keeps the order per pair and moves messages in progress() only") {
  FakeControlGroup group(3);
  const auto leader = group.plane(0);
  const auto member = group.plane(2);
  int woken = 0;
  group.on_arrival(0, [&] { ++woken; });
  net::Received got;
  REQUIRE(member->send(0, bytes_of(1)).ok());
  REQUIRE(member->send(0, bytes_of(2)).ok());
  CHECK(member->pending());
  CHECK_FALSE(leader->receive(got));
  CHECK(member->progress());
  CHECK_FALSE(member->pending());
  CHECK(woken == 2);
  REQUIRE(leader->receive(got));
  CHECK((got.from == 2 && got.bytes == bytes_of(1)));
  REQUIRE(leader->receive(got));
  CHECK(got.bytes == bytes_of(2));
  REQUIRE(leader->broadcast(bytes_of(3)).ok());
  leader->progress();
  REQUIRE(member->receive(got));
  CHECK((got.from == 0 && got.bytes == bytes_of(3)));
  CHECK(member->send(1, bytes_of(4)).code() == Errc::kInvalidArgument);
}

TEST_CASE("a dead member is seen by the leader, a dead leader by all, and earlier messages still arrive") {
  FakeControlGroup group(3);
  const auto leader = group.plane(0);
  const auto second = group.plane(1);
  const auto third = group.plane(2);
  int woken = 0;
  group.on_arrival(0, [&] { ++woken; });
  REQUIRE(third->send(0, bytes_of(1)).ok());
  third->progress();
  group.mark_dead(2);
  CHECK(woken == 2);
  CHECK(leader->lost().value_or(EndedLink{}).peer == 2);
  CHECK_FALSE(second->lost().has_value());
  CHECK(leader->send(2, bytes_of(2)).code() == Errc::kRankLost);
  net::Received got;
  CHECK(leader->receive(got));
  group.mark_dead(0);
  CHECK(second->lost().value_or(EndedLink{}).peer == 0);
}

}  // namespace
}  // namespace distrun::test
