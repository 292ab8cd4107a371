// CUDA tensors across hosts through the engine. `hierarchical` uses nccl (over the fake) inside the hosts and TCP
// between them. If the order of the engine or of the pipeline were wrong, these tests would hang.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <numeric>

#include "runtime/backend/hierarchical/hierarchical_factory.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"
#include "test/support/engine_ranks.h"
#include "test/support/fake_host_link.h"
#include "test/support/fake_store.h"

extern const char* const kNcclPlugin;

namespace distrun::engine {
namespace {

using test::EngineJob;

constexpr std::size_t kPiece = 4096;
constexpr int kRanks = 4;  // two on each of two hosts

// Holds the plug-in, loaded once in this process, and the connections of all ranks.
class Job {
 public:
  Job() : job_(options()), links_(kRanks) {
    settings_.plugins = kNcclPlugin;
    plugins_ = backend::plugin::load_plugins(settings_, "/nonexistent");
    plugins_.factories.push_back(backend::make_hierarchical_factory(kPiece));
    for (int host = 0; host < 2; ++host) {
      hosts_.push_back(std::make_unique<test::FakeHost>(2, test::FakeHostOptions{.first_rank = 2 * host}));
    }
  }

  void run(const std::function<void(int, Engine&)>& body) { job_.run(body); }

  // A tensor on the GPU of `rank`, with a mark on the caller's stream that says when it is ready.
  Submission on_gpu(int rank, Submission one) const {
    one.device = {.type = DeviceType::kCuda, .index = static_cast<std::int16_t>(rank)};
    auto mark = backend::find_factory(plugins_.factories, "hierarchical")->mark(one.device, nullptr);
    EXPECT_OK(mark);
    one.mark = *std::move(mark);
    return one;
  }

 private:
  test::EngineJobOptions options() {
    return {.ranks = kRanks,
            .gpu_backend = [this](int set, const std::vector<int>& members, int rank, net::WaitSet& wait_set) {
              return make(set, members, rank, wait_set);
            }};
  }

  // Makes `hierarchical` if the members are on both hosts and one host has two of them, otherwise nccl.
  std::unique_ptr<backend::Backend> make(int set, const std::vector<int>& members, int rank, net::WaitSet& wait_set) {
    auto& link = links_[static_cast<std::size_t>(rank)];
    if (!link) link = hosts_[static_cast<std::size_t>(rank / 2)]->link(rank % 2, &wait_set);
    const auto own = static_cast<int>(std::ranges::find(members, rank) - members.begin());
    const backend::GroupSpec group = {
        .id = "set" + std::to_string(set), .members = members, .index = own, .device = DeviceType::kCuda};
    const backend::Services services = {.world = &world_,
                                        .key = &key_,
                                        .settings = &settings_,
                                        .store = &store_,
                                        .wait_set = &wait_set,
                                        .host_link = link.get(),
                                        .factories = &plugins_.factories};
    const auto* factory = backend::find_factory(plugins_.factories, members.size() > 2 ? "hierarchical" : "nccl");
    auto made = factory->create(group, services, deadline_after(30));
    DISTRUN_CHECK(made.ok(), made.status().message());
    return *std::move(made);
  }

  EngineJob job_;  // its wait sets must outlive the links
  Settings settings_;
  backend::plugin::Plugins plugins_;
  net::World world_;
  net::JobKey key_ = net::JobKey::generate();
  test::FakeStore store_;
  std::vector<std::unique_ptr<test::FakeHost>> hosts_;
  std::vector<std::unique_ptr<test::FakeHostLink>> links_;  // only rank i's thread touches [i]
};

Submission sum_of(const std::string& name, int set, std::vector<float>& memory) {
  return {.name = name,
          .shape = {static_cast<std::int64_t>(memory.size())},
          .process_set = set,
          .input = memory.data(),
          .output = memory.data()};
}

// One element, less than a piece, or several pieces.
std::vector<float> data_of(int number, int rank) {
  return std::vector<float>(1U << (number % 3 * 8), static_cast<float>(number + rank));
}

TEST_CASE("gpu over hosts: sets that share GPUs run in the order of the log", "[nccl]") {
  Job hosts;
  hosts.run([&](int rank, Engine& engine) {
    const std::vector<std::vector<int>> members = {{0, 1, 2, 3}, {0, 1}, {1, 2, 3}};
    std::vector<int> sets = {0};
    for (std::size_t i = 1; i < members.size(); ++i) {
      const auto set = engine.add_process_set(members[i], false, deadline_after(30));
      EXPECT_OK(set);
      sets.push_back(*set);
    }
    for (int step = 0; step < 10; ++step) {
      std::vector<std::vector<float>> data;
      std::vector<Submission> all;
      std::vector<float> expected;
      data.reserve(36);
      for (int number = 0; number < 36; ++number) {
        const std::size_t i = static_cast<std::size_t>(number) % sets.size();
        if (std::ranges::find(members[i], rank) == members[i].end()) continue;
        data.push_back(data_of(number / 3, rank));
        all.push_back(hosts.on_gpu(rank, sum_of("t" + std::to_string(number), sets[i], data.back())));
        all.back().prescale = 2;
        const int ranks = std::accumulate(members[i].begin(), members[i].end(), 0);
        expected.push_back(static_cast<float>(2 * (ranks + static_cast<int>(members[i].size()) * (number / 3))));
      }
      // Each rank submits in a different order.
      std::vector<HandlePtr> handles;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t turned = (i + static_cast<std::size_t>(rank * 7 + step)) % all.size();
        auto submitted = engine.submit(std::span(&all[turned], 1));
        EXPECT_OK(submitted);
        handles.push_back(submitted->front());
      }
      EXPECT_OK(engine.wait_all(handles, deadline_after(30)));
      for (const HandlePtr& handle : handles) EXPECT_OK(handle->status());
      for (std::size_t i = 0; i < data.size(); ++i) {
        EXPECT_EQ(data[i].front(), expected[i]);
        EXPECT_EQ(data[i].back(), expected[i]);
      }
    }
  });
}

TEST_CASE("gpu over hosts: average, postscale and an operation of another kind between them", "[nccl]") {
  Job hosts;
  hosts.run([&](int rank, Engine& engine) {
    std::vector<float> mean(5000, static_cast<float>(rank));
    Submission first = hosts.on_gpu(rank, sum_of("mean", 0, mean));
    first.reduce = ReduceOp::kAverage;
    first.postscale = 4;
    std::vector<float> sent(100, static_cast<float>(rank));
    Submission second = hosts.on_gpu(rank, sum_of("sent", 0, sent));
    second.kind = OpKind::kBroadcast;
    second.root = 3;
    std::vector<std::int16_t> small(3000, 2);
    Submission third = hosts.on_gpu(
        rank, {.name = "small", .dtype = DType::kI16, .shape = {3000}, .input = small.data(), .output = small.data()});
    const Submission all[] = {first, second, third};
    auto handles = engine.submit(all);
    EXPECT_OK(handles);
    EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
    for (const HandlePtr& handle : *handles) EXPECT_OK(handle->status());
    EXPECT_EQ(mean.back(), 6.0F);
    EXPECT_EQ(sent.back(), 3.0F);
    EXPECT_EQ(small.back(), std::int16_t{8});
  });
}

}  // namespace
}  // namespace distrun::engine
