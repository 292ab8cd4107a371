#include "runtime/api/join/membership.h"

#include <catch2/catch_test_macros.hpp>

#include "distrun/distrun.h"
#include "runtime/api/join/exchange.h"
#include "runtime/base/settings.h"
#include "runtime/net/bytes/wire.h"
#include "test/support/fake_store.h"
#include "test/support/ranks.h"

namespace distrun::api {
namespace {

net::World world_of(int rank, int size) {
  net::World world;
  world.rank = rank;
  world.size = size;
  world.host = "host" + std::to_string(rank);
  return world;
}

TEST_CASE("rank 0's job-wide settings win and the difference is told", "[api]") {
  test::FakeStore store;
  test::run_ranks(3, [&](int rank) {
    Settings settings;
    settings.fusion_threshold = 1000 + static_cast<std::uint64_t>(rank == 2 ? 1 : 0);
    settings.log_level = rank == 1 ? "debug" : "error";
    const auto membership = agree_on_membership(store, world_of(rank, 3), settings, deadline_after(20));
    EXPECT_OK(membership);
    EXPECT_EQ(settings.fusion_threshold, 1000U);
    EXPECT_EQ(membership->warnings.size(), rank == 2 ? 1U : 0U);
    if (rank == 2) EXPECT(membership->warnings[0].find("fusion_threshold") != std::string::npos);
    EXPECT_EQ(settings.log_level, rank == 1 ? "debug" : "error");  // each rank keeps its own
    EXPECT_EQ(membership->hosts, (std::vector<std::string>{"host0", "host1", "host2"}));
  });
}

TEST_CASE("only rank 0 tells its settings, for all ranks get what each has told", "[api]") {
  test::FakeStore store;
  test::run_ranks(2, [&](int rank) {
    Settings settings;
    EXPECT_OK(agree_on_membership(store, world_of(rank, 2), settings, deadline_after(20)));
  });
  CHECK(store.get("members/1", deadline_after(1))->size() < 100);
}

TEST_CASE("rank 0 warns of the hosts with another build, and the job goes on", "[api]") {
  test::FakeStore store;
  test::run_ranks(4, [&](int rank) {
    Settings settings;
    net::World world = world_of(rank, 4);
    if (rank == 3) world.host = "host2";
    const auto membership =
        agree_on_membership(store, world, settings, deadline_after(20), rank >= 2 ? "an old one" : "the new one");
    EXPECT_OK(membership);
    EXPECT_EQ(membership->warnings.size(), rank == 0 ? 1U : 0U);
    if (rank == 0)
      EXPECT(
          membership->warnings[0].starts_with("the build of distrun on host2 differs from that of rank 0 on host0: "));
  });
}

TEST_CASE("builds of the same sources are not warned of", "[api]") {
  CHECK(build_id().size() == 16);
  test::FakeStore store;
  test::run_ranks(2, [&](int rank) {
    Settings settings;
    const auto membership = agree_on_membership(store, world_of(rank, 2), settings, deadline_after(20));
    EXPECT_OK(membership);
    EXPECT(membership->warnings.empty());
  });
}

TEST_CASE("a setting that rank 0's build alone has is an error that says so", "[api]") {
  test::FakeStore store;
  test::run_ranks(2, [&](int rank) {
    if (rank == 0) {
      net::WireWriter writer;
      writer.string(distrun_version()).string("a newer one").string("host0");
      writer.list(std::vector<std::string>{"a_new_setting"},
                  [](net::WireWriter& to, const std::string& name) { to.string(name).string("1"); });
      const auto bytes = writer.view();
      EXPECT_OK(exchange(store, {.ranks = {0, 1}, .index = 0}, "members",
                         {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, deadline_after(20)));
      return;
    }
    Settings settings;
    const auto membership = agree_on_membership(store, world_of(rank, 2), settings, deadline_after(20));
    EXPECT_EQ(membership.status().code(), Errc::kProtocol);
    EXPECT(membership.status().message().starts_with(
        "rank 0 on host0 has a setting a_new_setting, which this rank does not know"));
  });
}

TEST_CASE("hosts whose ranks share no memory are named with the first reason, and lone ranks are not", "[api]") {
  const std::vector<std::string> hosts = {"a", "b", "b", "c", "c"};
  CHECK(unshared_hosts(hosts, {"", "", "", "", ""}).empty());
  CHECK(unshared_hosts(hosts, {"refused", "", "", "", ""}).empty());
  CHECK(unshared_hosts(hosts, {"refused", "", "", "refused too", "refused too"}) ==
        "the ranks of c cannot share memory on their host. They use sockets, which are slower (rank 3: "
        "refused too)");
  CHECK(unshared_hosts(hosts, {"", "x", "x", "y", "y"}).starts_with("the ranks of b, c cannot share memory"));
}

TEST_CASE("a rank that never comes is named", "[api]") {
  test::FakeStore store;
  Settings settings;
  const auto membership = agree_on_membership(store, world_of(0, 2), settings, deadline_after(0.05));
  REQUIRE_FALSE(membership.ok());
  CHECK(membership.status().info().ranks == std::vector<int>{1});
}

}  // namespace
}  // namespace distrun::api
