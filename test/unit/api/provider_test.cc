#include "runtime/api/backends/provider.h"

#include <catch2/catch_test_macros.hpp>

#include "runtime/base/settings.h"
#include "test/support/fake_store.h"
#include "test/support/planned_factory.h"
#include "test/support/ranks.h"

namespace distrun::api {
namespace {

using test::PlannedFactory;

// A job of `size` ranks. Each rank uses the backends of its session.
struct Job {
  int size = 2;
  std::vector<test::PlannedBackend> plans;
  Settings settings{};
  test::FakeStore store{};
  std::vector<std::string> warnings{};  // the warnings of rank 0

  template <class Body>
  void run(Body&& body) {
    test::run_ranks(size, [&](int rank) {
      const net::World world{.rank = rank, .size = size};
      std::vector<std::string> hosts;
      for (int i = 0; i < size; ++i) hosts.push_back("node" + std::to_string(i));
      const Log log("warning", rank, [&](const std::string& line) {
        if (rank == 0) warnings.push_back(line);
      });
      Factories factories;
      for (const auto& plan : plans) factories.push_back(std::make_unique<PlannedFactory>(plan));
      SetBackends backends(
          {.world = &world, .settings = &settings, .store = &store, .host_link_error = "", .log = &log},
          std::move(hosts), std::move(factories));
      body(rank, backends);
    });
  }
  [[nodiscard]] std::vector<int> everybody() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
    return ranks;
  }
};

TEST_CASE("a process set has a backend for each kind of device, and says why until it is gone", "[api]") {
  Job job{.plans = {{"slow", 10}, {"fast", 90}}};
  job.run([&](int, SetBackends& backends) {
    const auto made = backends.make(0, job.everybody());
    EXPECT_OK(made);
    EXPECT_EQ(made->size(), kDeviceTypes.size());
    EXPECT_EQ((*made)[0]->name(), "fast");
    EXPECT_EQ((*made)[1]->name(), "none");
    EXPECT_OK(backends.make(3, job.everybody()));
    EXPECT_EQ(backends.choices().size(), 2U);
    EXPECT_EQ(to_text(backends.choices()[0]), "process set 0: cpu: fast (planned)\n  not slow: lower score (10 < 90)");
    backends.gone(0);
    EXPECT_EQ(backends.choices().size(), 1U);
    EXPECT_EQ(to_text(backends.choices()[0]), "process set 3: cpu: fast (planned)\n  not slow: lower score (10 < 90)");
  });
  CHECK(job.warnings.empty());
}

TEST_CASE("rank 0 warns of a backend that could not be set up", "[api]") {
  Job job{.plans = {{"slow", 10}, {"fast", 90, 1}}};
  job.run([&](int, SetBackends& backends) { EXPECT_OK(backends.make(0, job.everybody())); });
  REQUIRE(job.warnings.size() == 1);
  CHECK(job.warnings[0].find("using slow, not fast: rank 1 (node1): not available: memory was refused") !=
        std::string::npos);
}

TEST_CASE("rank 0 warns where a setting named what cannot be had, and not of what is merely missing") {
  for (const bool unmet : {true, false}) {
    Job job{.plans = {{"slow", 10}, {.name = "fast", .score = 90, .unavailable_on = 1, .unmet_setting = unmet}}};
    job.run([&](int, SetBackends& backends) { EXPECT_OK(backends.make(0, job.everybody())); });
    CHECK(job.warnings.size() == (unmet ? 1U : 0U));
  }
}

TEST_CASE("what the members wrote to make a set is erased, and what else is there stays", "[api]") {
  Job job{.plans = {{.name = "own", .score = 10, .leaves = "own keys/"}}};
  REQUIRE(job.store.set("own keys/set1/a", "x").ok());
  REQUIRE(job.store.set("own keys/set10/a", "x").ok());
  job.run([&](int rank, SetBackends& backends) {
    EXPECT_OK(backends.make(1, job.everybody()));
    EXPECT_OK(backends.make(10, job.everybody()));
    if (rank == 0) backends.set_decided(1);
  });
  const auto there = [&](const std::string& key) { return job.store.get(key, Clock::now()).ok(); };
  CHECK_FALSE(there("own keys/set1/a"));
  CHECK(there("own keys/set10/a"));
  CHECK_FALSE(there("offers/set1/1"));
  CHECK(there("offers/set10/1"));
  CHECK_FALSE(there("setup/set1/cpu/0/1"));
  CHECK(there("setup/set10/cpu/0/1"));
}

}  // namespace
}  // namespace distrun::api
