#include "runtime/api/join/places.h"

#include <catch2/catch_test_macros.hpp>

#include "test/support/fake_store.h"
#include "test/support/ranks.h"

namespace distrun::api {
namespace {

// Three ranks on a, two on b and one on c, in mixed order.
const std::vector<Place> kPlaces = {{"a", "m1", "10.0.0.1"}, {"b", "m2", "10.0.0.1"}, {"c", "m3", "192.168.0.1"},
                                    {"a", "m1", "10.0.0.1"}, {"b", "m2", "10.0.0.1"}, {"a", "m1", "127.0.0.1"}};

net::World world_at(int rank, const std::vector<Place>& places) {
  net::World world{.rank = rank, .size = static_cast<int>(places.size())};
  apply_places(world, places);
  return world;
}

TEST_CASE("local and cross ranks follow from everybody's place", "[api]") {
  const net::World first = world_at(0, kPlaces);
  CHECK(first.host == "a");
  CHECK(std::pair(first.local_rank, first.local_size) == std::pair(0, 3));
  CHECK(std::pair(first.cross_rank, first.cross_size) == std::pair(0, 3));
  const net::World fourth = world_at(4, kPlaces);
  CHECK(fourth.host == "b");
  CHECK(std::pair(fourth.local_rank, fourth.local_size) == std::pair(1, 2));
  CHECK(std::pair(fourth.cross_rank, fourth.cross_size) == std::pair(1, 2));
  const net::World last = world_at(5, kPlaces);
  CHECK(std::pair(last.local_rank, last.local_size) == std::pair(2, 3));
  CHECK(std::pair(last.cross_rank, last.cross_size) == std::pair(0, 1));
}

TEST_CASE("rank 0's host has the address at which another host reached it", "[api]") {
  CHECK(world_at(0, kPlaces).address == "10.0.0.1");
  CHECK(world_at(5, kPlaces).address == "10.0.0.1");
  CHECK(world_at(1, kPlaces).address.empty());  // empty: its local address towards rank 0
  CHECK(world_at(0, {{"a", "m1", "127.0.0.1"}, {"a", "m1", "127.0.0.1"}}).address.empty());
  // Two hosts may have the same name.
  CHECK(world_at(1, {{"node", "m1", "10.0.0.1"}, {"node", "m2", "10.0.0.1"}}).local_size == 1);
}

TEST_CASE("the ranks tell each other", "[api]") {
  test::FakeStore store;
  test::run_ranks(6, [&](int rank) {
    net::World world{.rank = rank, .size = 6};
    EXPECT(exchange_places(world, store, kPlaces[static_cast<std::size_t>(rank)], deadline_after(20)).ok());
    EXPECT_EQ(world.host, kPlaces[static_cast<std::size_t>(rank)].host);
  });
}

}  // namespace
}  // namespace distrun::api
