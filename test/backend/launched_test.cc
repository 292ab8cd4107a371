// The conformance suite with ranks that a launcher has started: one process each, on any hosts. mpirun starts them for
// the plug-in `mpi`; distrun starts them with any backend (--backend). After an abort a process must not call MPI
// again, so each test case with an abort is a separate run.
#include <catch2/catch_test_macros.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "runtime/api/join/exchange.h"
#include "runtime/api/join/process_key.h"
#include "runtime/api/join/spawned_job.h"
#include "runtime/backend/builtin/builtin.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"
#include "test/backend/group_fixtures.h"
#include "test/backend/on_gpu.h"
#include "test/backend/ranks.h"

extern const char* const kLaunchedPlugins;

namespace distrun::test {
namespace {

constexpr double kTimeLimit = 60;

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return *std::move(result);
}

// The rank of this process, and the job's store. The launcher or rank 0 runs the store.
struct Job {
  net::World world;
  Settings settings;
  net::JobKey key = net::JobKey::generate();
  std::unique_ptr<net::StoreClient> channel;
  FakeStore alone;
  backend::Factories factories = backend::builtin_factories();
  int groups = 0;
  int gathered = 0;

  Job() {
    const Environment environment = process_environment();
    settings = must(read_settings(environment, {})).settings;
    settings.plugins = kLaunchedPlugins;
    if (settings.backend == "auto") settings.backend = "mpi";
    for (auto& plugin : backend::plugin::load_plugins(settings, "/nonexistent").factories) {
      factories.push_back(std::move(plugin));
    }
    join(environment);
  }

  net::Store& store() {
    if (!channel) return alone;
    return *channel;
  }
  [[nodiscard]] std::string own_address() const {
    return channel && world.address.empty() ? channel->local_host() : world.address;
  }

 private:
  void join(const Environment& environment) {
    const TimePoint deadline = deadline_after(kTimeLimit);
    if (environment.contains("DISTRUN_RANK")) {
      world = must(net::world_from_environment(environment));
      insist_on_all(environment);
      key = must(api::process_key(environment));
      channel = must(net::StoreClient::connect(world, key, deadline));
      return;
    }
    const auto launcher = must(net::other_launcher(environment));
    if (launcher) {
      world.rank = launcher->rank;
      world.size = launcher->size;
    }
    insist_on_all(environment);
    if (launcher) {
      auto joined = must(api::join_spawned_job(world, *launcher, deadline));
      key = joined.key;
      channel = std::move(joined.channel);
    }
  }
  // Without a detected launcher, each rank would pass the test as a world of size 1.
  void insist_on_all(const Environment& environment) const {
    const auto expected = environment.find("TEST_RANKS");
    if (expected != environment.end() && expected->second == std::to_string(world.size)) return;
    throw std::runtime_error("a world of " + std::to_string(world.size) + ", and TEST_RANKS is " +
                             (expected == environment.end() ? "not set: say how many there are" : expected->second));
  }
};

Job& job() {
  static const auto only = std::make_unique<Job>();
  return *only;
}

class LaunchedGroup final : public GroupFixture {
 public:
  Result<std::unique_ptr<backend::Backend>> create(int index, TimePoint deadline) override {
    auto made = net::WaitSet::create();
    if (!made.ok()) return made.status();
    wait_set_ = *std::move(made);
    const backend::GroupSpec group = {.id = std::to_string(++job().groups),
                                      .members = members_of(job().world.size),
                                      .index = index,
                                      .device = DISTRUN_LAUNCHED_ON_GPU ? DeviceType::kCuda : DeviceType::kCpu};
    if (job().settings.backend == "hierarchical") DISTRUN_RETURN_IF_ERROR(find_host(group.id, deadline));
    const backend::Services services = {.world = &job().world,
                                        .key = &job().key,
                                        .settings = &job().settings,
                                        .store = &job().store(),
                                        .wait_set = wait_set_.get(),
                                        .host_link = link_.get(),
                                        .local_host = job().own_address(),
                                        .factories = &job().factories};
    const backend::Factory* factory = backend::find_factory(job().factories, job().settings.backend);
    if (factory == nullptr) return Status(Errc::kUnsupported, "there is no backend " + job().settings.backend);
    const backend::Offer offer = factory->offer(group, services);
    if (!offer.available) return Status(Errc::kUnsupported, offer.reason);
    auto backend = factory->create(group, services, deadline);
    if (!backend.ok() || !DISTRUN_LAUNCHED_ON_GPU) return backend;
    return std::unique_ptr<backend::Backend>(std::make_unique<OnGpu>(*std::move(backend), index, subject().name));
  }
  net::WaitSet* wait_set(int) override { return wait_set_.get(); }

 private:
  Status find_host(const std::string& group, TimePoint deadline) {
    api::PrefixStore store(job().store(), "host of " + group + "/");
    auto link = net::connect_host(
        {.world = &job().world, .key = &job().key, .store = &store, .wait_set = wait_set_.get(), .deadline = deadline});
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
    return {};
  }

  std::unique_ptr<net::WaitSet> wait_set_;
  std::unique_ptr<net::HostLink> link_;
};

std::vector<std::string> gather(const std::string& mine) {
  const std::string prefix = "gathered/" + std::to_string(++job().gathered) + "/";
  (void)job().store().set(prefix + std::to_string(job().world.rank), mine);
  std::vector<std::string> all;
  for (int rank = 0; rank < job().world.size; ++rank) {
    const auto text = job().store().get(prefix + std::to_string(rank), deadline_after(kTimeLimit));
    all.push_back(text.ok() ? *text : "");
  }
  return all;
}

// The ranks leave together, because rank 0 has the store, and mpirun ends all ranks when one exits after an abort.
// distrun expects that they leave. After an abort mpirun's exit code says nothing, and "passed" of one rank says
// nothing about the others. The last rank to end therefore counts the passed ranks, before any rank has left.
class Leaving final : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void testRunEnded(const Catch::TestRunStats& stats) override {
    const bool passed = stats.totals.testCases.passed > 0 && stats.totals.testCases.allPassed();
    (void)job().store().add("passed", passed ? 1 : 0);
    const auto ended = job().store().add("ended", 1);
    if (ended.ok() && *ended == job().world.size) {
      const auto count = job().store().add("passed", 0);
      if (count.ok() && *count == job().world.size) {
        std::printf("all %d ranks have passed\n", job().world.size);
        std::fflush(stdout);
      }
      (void)job().store().set("all ended", "");
    }
    (void)job().store().get("all ended", deadline_after(kTimeLimit));
    if (job().channel) (void)job().channel->leave();
  }
};
CATCH_REGISTER_LISTENER(Leaving)

}  // namespace

const Subject& subject() {
  static const Subject launched = {.name = job().settings.backend + (DISTRUN_LAUNCHED_ON_GPU ? "_on_gpu" : ""),
                                   .sizes = {job().world.size},
                                   .make = [](int) { return std::make_unique<LaunchedGroup>(); },
                                   .forked = [](int) { return std::make_unique<LaunchedGroup>(); },
                                   .boundaries = DISTRUN_LAUNCHED_BOUNDARIES,
                                   .launched_as = job().world.rank,
                                   .gather = gather};
  return launched;
}

TEST_CASE("launched: nobody leaves a barrier before all have come") {
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
