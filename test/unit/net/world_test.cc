#include "runtime/net/identity/world.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::net {
namespace {

World some_world() {
  World world;
  world.rank = 5;
  world.size = 8;
  world.local_rank = 1;
  world.local_size = 4;
  world.cross_rank = 1;
  world.cross_size = 2;
  world.host = "node2";
  world.job_id = "job";
  world.store = "127.0.0.1:4000";
  world.address = "10.0.0.2";
  world.gpus = {2, 3};
  return world;
}

bool says(const Result<World>& world, const std::string& text) {
  return !world.ok() && world.status().message().find(text) != std::string::npos;
}

TEST_CASE("what is written is read back", "[net]") {
  const auto world = world_from_environment(to_environment(some_world()));
  REQUIRE(world.ok());
  CHECK(*world == some_world());
}

TEST_CASE("no variables are a world of one", "[net]") {
  const auto world = world_from_environment({{"PATH", "/bin"}});
  REQUIRE(world.ok());
  CHECK(world->size == 1);
  CHECK(world->store.empty());
}

TEST_CASE("a store or a key without a rank is no world of one", "[net]") {
  CHECK(says(world_from_environment({{"DISTRUN_STORE", "127.0.0.1:4000"}}), "DISTRUN_STORE is set, but DISTRUN_RANK"));
  CHECK(says(world_from_environment({{"DISTRUN_KEY_FD", "5"}}), "DISTRUN_KEY_FD is set, but DISTRUN_RANK"));
  CHECK(world_from_environment({{"DISTRUN_STORE", ""}, {"DISTRUN_KEY_FILE", "/key"}}).ok());
}

TEST_CASE("every missing or wrong variable is named", "[net]") {
  const Environment good = to_environment(some_world());
  for (const auto& [name, value] : good) {
    if (name == "DISTRUN_HOST" || name == "DISTRUN_JOB_ID" || name == "DISTRUN_ADDRESS" || name == "DISTRUN_GPUS")
      continue;
    Environment broken = good;
    broken.erase(name);
    CHECK(says(world_from_environment(broken), name));
    if (name == "DISTRUN_STORE") continue;
    for (const char* wrong : {"", "x", "-1", "99999999999", "3.5", "8 "}) {
      broken[name] = wrong;
      CHECK(says(world_from_environment(broken), name));
    }
  }
}

TEST_CASE("a rank's own GPUs are a list of numbers or are not told", "[net]") {
  Environment environment = to_environment(some_world());
  CHECK(environment["DISTRUN_GPUS"] == "2,3");
  for (const char* wrong : {"x", "-1", "2,", ",2", "2,,3", "2 3", "99999999999"}) {
    environment["DISTRUN_GPUS"] = wrong;
    CHECK(says(world_from_environment(environment), "DISTRUN_GPUS=" + std::string(wrong) + " is not a list"));
  }
  environment["DISTRUN_GPUS"] = "";
  CHECK(world_from_environment(environment)->gpus.empty());
  environment.erase("DISTRUN_GPUS");
  CHECK(world_from_environment(environment)->gpus.empty());
}

}  // namespace
}  // namespace distrun::net
