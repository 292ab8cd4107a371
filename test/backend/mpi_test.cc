// The conformance suite on the plug-in `mpi`: mpirun starts this program once per rank. After an abort MPI is not
// called any more in a process, so each case about that is a run of its own.
#include <catch2/catch_test_macros.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "runtime/api/spawned_job.h"
#include "runtime/backend/plugin/loader.h"
#include "test/backend/group_fixtures.h"
#include "test/backend/ranks.h"

namespace distrun::test {
namespace {

constexpr double kPatience = 60;

// This process's rank, and the job's store, which rank 0 keeps.
struct Job {
  net::World world;
  std::optional<api::SpawnedJob> joined;
  FakeStore alone;
  int groups = 0;
  int gathered = 0;

  net::Store& store() {
    if (!joined) return alone;
    return *joined->channel;
  }
};

Job& job() {
  static const std::unique_ptr<Job> only = [] {
    auto made = std::make_unique<Job>();
    const auto launcher = net::other_launcher(process_environment());
    if (!launcher.ok()) throw std::runtime_error(launcher.status().message());
    if (!launcher->has_value()) return made;
    made->world.rank = (*launcher)->rank;
    made->world.size = (*launcher)->size;
    auto joined = api::join_spawned_job(made->world, **launcher, deadline_after(kPatience));
    if (!joined.ok()) throw std::runtime_error(joined.status().message());
    made->joined = *std::move(joined);
    return made;
  }();
  return *only;
}

class LaunchedGroup final : public GroupFixture {
 public:
  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    auto made = net::WaitSet::create();
    if (!made.ok()) return made.status();
    wait_set_ = *std::move(made);
    Settings settings;
    settings.plugins = DISTRUN_MPI_PLUGIN;
    const auto plugins = backend::plugin::load_plugins(settings, "/nonexistent");
    if (plugins.factories.size() != 1) return Status(Errc::kInternal, "the plug-in was not found");
    const backend::GroupSpec group = {
        .id = std::to_string(++job().groups), .members = members_of(job().world.size), .index = index};
    const backend::Services services = {
        .world = &job().world, .key = &key_, .store = &job().store(), .wait_set = wait_set_.get()};
    const backend::Offer offer = plugins.factories[0]->offer(group, services);
    if (!offer.available) return Status(Errc::kUnsupported, offer.reason);
    return plugins.factories[0]->create(group, services, deadline);
  }
  net::WaitSet* wait_set(int) override { return wait_set_.get(); }

 private:
  net::JobKey key_ = net::JobKey::generate();
  std::unique_ptr<net::WaitSet> wait_set_;
};

std::vector<std::string> gather(const std::string& mine) {
  const std::string prefix = "gathered/" + std::to_string(++job().gathered) + "/";
  (void)job().store().set(prefix + std::to_string(job().world.rank), mine);
  std::vector<std::string> all;
  for (int rank = 0; rank < job().world.size; ++rank) {
    const auto text = job().store().get(prefix + std::to_string(rank), deadline_after(kPatience));
    all.push_back(text.ok() ? *text : "");
  }
  return all;
}

// Rank 0 has the store, and mpirun ends all ranks when one exits after an abort: they leave together.
class Leaving final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void testRunEnded(const Catch::TestRunStats&) override {
    const auto ended = job().store().add("ended", 1);
    if (ended.ok() && *ended == job().world.size) (void)job().store().set("all ended", "");
    (void)job().store().get("all ended", deadline_after(kPatience));
  }
};
CATCH_REGISTER_LISTENER(Leaving)

}  // namespace

const Subject& subject() {
  static const Subject mpi = {.name = "mpi",
                              .sizes = {job().world.size},
                              .make = [](int) { return std::make_unique<LaunchedGroup>(); },
                              .forked = [](int) { return std::make_unique<LaunchedGroup>(); },
                              .boundaries = DISTRUN_MPI_BOUNDARIES,
                              .launched_as = job().world.rank,
                              .gather = gather};
  return mpi;
}

TEST_CASE("mpi: nobody leaves a barrier before all have come") {
  for_all_sizes([](Rank& rank) {
    const std::string counter = "arrived/" + std::to_string(job().groups);
    for (int round = 1; round <= 30; ++round) {
      rank.expect(job().store().add(counter, 1).ok(), "the store is gone");
      rank.run({.kind = OpKind::kBarrier}, "barrier");
      const auto arrived = job().store().add(counter, 0);
      rank.expect(arrived.ok() && *arrived >= round * rank.size, "left a barrier before all had come");
    }
  });
}

}  // namespace distrun::test
