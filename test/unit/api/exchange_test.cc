#include "runtime/api/join/exchange.h"

#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "test/support/fake_store.h"
#include "test/support/ranks.h"
#include "test/support/store_thread.h"

namespace distrun::api {
namespace {

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST_CASE("every member gets every member's blob, in member order", "[api]") {
  for (const int size : {1, 2, 5}) {
    test::FakeStore store;
    test::run_ranks(size, [&](int rank) {
      const std::string mine(static_cast<std::size_t>(rank), 'x');  // rank 0's is empty
      const auto all = exchange(store, {first_ranks(size), rank}, "topic", mine, deadline_after(20));
      EXPECT_OK(all);
      EXPECT_EQ(all->size(), static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < all->size(); ++i) EXPECT_EQ((*all)[i].size(), i);
    });
  }
}

TEST_CASE("members need not be the first ranks", "[api]") {
  test::FakeStore store;
  const std::vector<int> members = {3, 7};
  test::run_ranks(2, [&](int index) {
    const auto all = exchange(store, {members, index}, "pair", std::to_string(index), deadline_after(20));
    EXPECT_OK(all);
    EXPECT_EQ(*all, (std::vector<std::string>{"0", "1"}));
  });
}

TEST_CASE("a member that does not come is named by its rank", "[api]") {
  test::FakeStore store;
  const auto all = exchange(store, {{4, 9}, 0}, "offers", "mine", deadline_after(0.05));
  REQUIRE_FALSE(all.ok());
  CHECK(all.status().code() == Errc::kTimeout);
  CHECK(all.status().info().ranks == std::vector<int>{9});
  CHECK(all.status().message() == "rank 9 did not call init() in time (--start-timeout). Check whether it still runs");
  const Members late{.ranks = {4, 7, 9}, .time_limit = 6};
  CHECK(exchange(store, late, "members", "mine", deadline_after(0.05)).status().message() ==
        "ranks 7, 9 did not call init() within 6 s (--start-timeout). Check whether they still run");
  const Members met{.ranks = {4, 9}, .time_limit = 1.5, .met = true};
  CHECK(exchange(store, met, "offers/2", "mine", deadline_after(0.05)).status().message() ==
        "rank 9 did not come to the step 'offers/2' within 1.5 s (--start-timeout). Check whether it still runs");
}

TEST_CASE("every member names the ones that do not come, also when the time was up before", "[api]") {
  test::FakeStore store;
  test::run_ranks(3, [&](int rank) {
    if (rank == 1) return;
    const auto all = exchange(store, {first_ranks(3), rank}, "control", "mine", deadline_after(rank == 0 ? 0.05 : 0));
    EXPECT(!all.ok());
    EXPECT_EQ(all.status().code(), Errc::kTimeout);
    EXPECT_EQ(all.status().info().ranks, std::vector<int>{1});
  });
}

TEST_CASE("who has come long before member 0 names the one that does not come, not member 0", "[api]") {
  test::FakeStore store;
  test::run_ranks(3, [&](int rank) {
    if (rank == 2) return;
    const auto all = exchange(store, {first_ranks(3), rank}, "members", "mine", deadline_after(rank == 0 ? 4.5 : 0));
    EXPECT(!all.ok());
    EXPECT_EQ(all.status().info().ranks, std::vector<int>{2});
  });
}

TEST_CASE("what all members of a large group say together is more than the store takes at once", "[api]") {
  constexpr int kMembers = 512;
  const std::string blob(3 << 10, 'x');
  test::StoreThread server(kMembers);
  const auto leader = server.connect(0);
  const auto last = server.connect(kMembers - 1);
  for (int rank = 1; rank < kMembers; ++rank) {
    REQUIRE(last->set("offers/" + std::to_string(rank), blob + std::to_string(rank)).ok());
  }
  const std::vector<int> ranks = first_ranks(kMembers);
  REQUIRE(exchange(*leader, {ranks, 0}, "offers", blob + "0", deadline_after(40)).ok());
  const auto all = exchange(*last, {ranks, kMembers - 1}, "offers", blob + "511", deadline_after(40));
  REQUIRE(all.ok());
  REQUIRE(all->size() == kMembers);
  for (std::size_t i = 0; i < all->size(); ++i) CHECK((*all)[i] == blob + std::to_string(i));
}

TEST_CASE("what many members say alike is told once", "[api]") {
  constexpr int kMembers = 4096;
  test::FakeStore store;
  const std::string blob(1000, 'x');
  for (int rank = 1; rank < kMembers; ++rank) {
    REQUIRE(store.set("offers/" + std::to_string(rank), rank == 7 ? "another" : blob).ok());
  }
  const std::vector<int> ranks = first_ranks(kMembers);
  REQUIRE(exchange(store, {ranks, 0}, "offers", blob, deadline_after(40)).ok());
  CHECK(store.get("offers/all", deadline_after(1))->size() < 32 << 10);
  const auto all = exchange(store, {ranks, kMembers - 1}, "offers", blob, deadline_after(40));
  REQUIRE(all.ok());
  REQUIRE(all->size() == kMembers);
  for (std::size_t i = 0; i < all->size(); ++i) CHECK((*all)[i] == (i == 7 ? "another" : blob));
}

TEST_CASE("a damaged list is refused", "[api]") {
  test::FakeStore store;
  const std::string good("\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0a\x01\0\0\0b\x02\0\0\0\x01\0\0\0\0\0\0\0", 34);
  for (std::size_t length = 0; length < good.size(); ++length) {
    REQUIRE(store.set("topic/all", good.substr(0, length)).ok());
    const auto all = exchange(store, {{0, 1}, 1}, "topic", "mine", deadline_after(1));
    REQUIRE_FALSE(all.ok());
    CHECK(all.status().code() == Errc::kProtocol);
  }
  for (const char parts : {'\0', '\x7f'}) {
    REQUIRE(store.set("topic/all", std::string("\0\0\0", 3) + parts + good.substr(4)).ok());
    CHECK(exchange(store, {{0, 1}, 1}, "topic", "mine", deadline_after(1)).status().code() == Errc::kProtocol);
  }
  std::string beyond = good;
  beyond[30] = '\x02';
  REQUIRE(store.set("topic/all", beyond).ok());
  CHECK(exchange(store, {{0, 1}, 1}, "topic", "mine", deadline_after(1)).status().code() == Errc::kProtocol);
  REQUIRE(store.set("topic/all", good).ok());
  const auto all = exchange(store, {{0, 1}, 1}, "topic", "mine", deadline_after(1));
  REQUIRE(all.ok());
  CHECK(*all == std::vector<std::string>{"b", "a"});
}

TEST_CASE("two rounds under two prefixes do not meet", "[api]") {
  test::FakeStore store;
  PrefixStore first(store, "init1/");
  PrefixStore second(store, "init2/");
  REQUIRE(first.set("key", "old").ok());
  CHECK_FALSE(second.get("key", deadline_after(0.01)).ok());
  CHECK(*first.get("key", deadline_after(1)) == "old");
}

}  // namespace
}  // namespace distrun::api
