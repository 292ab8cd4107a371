// CUDA tensors through the engine, on the plug-in over the fake. Ranks are threads, and rank r has GPU r. The GPU's
// memory is the process's own.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <numeric>

#include "runtime/backend/absent_backend.h"
#include "runtime/backend/plugin/loader.h"
#include "runtime/base/settings.h"
#include "runtime/engine/protocol/tensor_key.h"
#include "test/support/engine_ranks.h"
#include "test/support/fake_store.h"

extern const char* const kNcclPlugin;

namespace distrun::engine {
namespace {

using test::EngineJob;

const backend::Factory& factory() {
  static const backend::plugin::Plugins only = [] {
    Settings settings;
    settings.plugins = kNcclPlugin;
    return backend::plugin::load_plugins(settings, "/nonexistent");
  }();
  return *only.factories.at(0);
}

test::EngineJobOptions gpu_job(int ranks, test::FakeStore& store) {
  const auto make = [&store](int set, const std::vector<int>& members, int rank, net::WaitSet& wait_set) {
    backend::GroupSpec group = {.id = "set" + std::to_string(set), .members = members, .index = 0};
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank) group.index = static_cast<int>(i);
    }
    auto made =
        factory().create(group, {.store = &store, .wait_set = &wait_set, .host_link_error = ""}, deadline_after(30));
    DISTRUN_CHECK(made.ok(), made.status().message());
    return *std::move(made);
  };
  return {.ranks = ranks, .gpu_backend = make};
}

HandlePtr finish(Engine& engine, const Submission& one) {
  auto handles = engine.submit(std::span(&one, 1));
  EXPECT_OK(handles);
  EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
  return handles->front();
}

void run(Engine& engine, const Submission& one) { EXPECT_OK(finish(engine, one)->status()); }

// A tensor on the GPU of `rank`, with a mark on the caller's stream that says when it is ready.
Submission on_gpu(int rank, Submission one) {
  one.device = {.type = DeviceType::kCuda, .index = static_cast<std::int16_t>(rank)};
  auto mark = factory().mark(one.device, nullptr);
  EXPECT_OK(mark);
  one.mark = *std::move(mark);
  return one;
}

Submission sum_of(const std::string& name, std::vector<float>& memory) {
  return {.name = name,
          .shape = {static_cast<std::int64_t>(memory.size())},
          .input = memory.data(),
          .output = memory.data()};
}

TEST_CASE("gpu: many tensors in one call, fused and scaled", "[nccl]") {
  for (const int ranks : {1, 2, 3, 5}) {
    test::FakeStore store;
    EngineJob job(gpu_job(ranks, store));
    job.run([&](int rank, Engine& engine) {
      for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<float>> data(20, std::vector<float>(7, static_cast<float>(rank)));
        std::vector<Submission> all;
        for (std::size_t i = 0; i < data.size(); ++i) {
          all.push_back(on_gpu(rank, sum_of("t" + std::to_string(i), data[i])));
          all.back().reduce = ReduceOp::kAverage;
          all.back().prescale = 2;
        }
        auto handles = engine.submit(all);
        EXPECT_OK(handles);
        EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
        for (const HandlePtr& handle : *handles) EXPECT_OK(handle->status());
        for (const auto& one : data) EXPECT_EQ(one[6], static_cast<float>(ranks - 1));
      }
    });
  }
}

TEST_CASE("gpu: outputs whose size only the engine knows are on the device", "[nccl]") {
  constexpr int kRanks = 3;
  test::FakeStore store;
  EngineJob job(gpu_job(kRanks, store));
  job.run([&](int rank, Engine& engine) {
    const auto rows = static_cast<std::size_t>(rank);  // 0 rows on rank 0
    std::vector<float> mine(2 * rows, static_cast<float>(rank));
    const HandlePtr gathered = finish(
        engine, on_gpu(rank, {.kind = OpKind::kAllgather, .name = "gather", .shape = {rank, 2}, .input = mine.data()}));
    EXPECT_OK(gathered->status());
    const std::vector<float> all = {1, 1, 2, 2, 2, 2};
    EXPECT_EQ(gathered->output().bytes, all.size() * sizeof(float));
    EXPECT(std::memcmp(gathered->output().gathered.get(), all.data(), gathered->output().bytes) == 0);

    std::vector<float> sent = {static_cast<float>(rank), static_cast<float>(rank), static_cast<float>(rank)};
    const HandlePtr exchanged = finish(
        engine,
        on_gpu(
            rank,
            {.kind = OpKind::kAlltoall, .name = "exchange", .shape = {3}, .input = sent.data(), .splits = {0, 1, 2}}));
    EXPECT_OK(exchanged->status());
    const std::vector<std::int64_t> received(kRanks, rank);
    EXPECT(exchanged->output().first_dims == received);

    std::vector<float> parts(5);
    std::iota(parts.begin(), parts.end(), static_cast<float>(rank));
    std::vector<float> share(rank == 2 ? 1 : 2);
    run(engine, on_gpu(rank, {.kind = OpKind::kReducescatter,
                              .name = "scatter",
                              .shape = {5},
                              .input = parts.data(),
                              .output = share.data()}));
    EXPECT_EQ(share[0], static_cast<float>(3 + 3 * 2 * rank));
  });
}

TEST_CASE("gpu: a rank that has joined takes part with device memory of the backend's", "[nccl]") {
  constexpr int kRanks = 3;
  test::FakeStore store;
  EngineJob job(gpu_job(kRanks, store));
  job.run([&](int rank, Engine& engine) {
    for (int step = 0; step < rank; ++step) {  // rank 0 joins and has never had a CUDA tensor
      std::vector<float> sum(4, 1.0F);
      std::vector<double> least(3, 5.0 + rank);
      run(engine, on_gpu(rank, sum_of("sum", sum)));
      EXPECT_EQ(sum[3], static_cast<float>(kRanks - 1 - step));
      run(engine, on_gpu(rank, {.name = "least",
                                .dtype = DType::kF64,
                                .shape = {3},
                                .reduce = ReduceOp::kMin,
                                .input = least.data(),
                                .output = least.data()}));
      EXPECT_EQ(least[2], step == 0 ? 6.0 : 7.0);
    }
    const HandlePtr joined = finish(engine, {.kind = OpKind::kJoin, .name = std::string(kJoinName)});
    EXPECT_OK(joined->status());
    EXPECT_EQ(joined->output().first_dims[0], kRanks - 1);
  });
}

TEST_CASE("gpu: overlapping process sets, submitted in different orders", "[nccl]") {
  constexpr int kRanks = 3;
  test::FakeStore store;
  EngineJob job(gpu_job(kRanks, store));
  job.run([&](int rank, Engine& engine) {
    const auto left = engine.add_process_set({0, 1}, false, deadline_after(30));
    const auto right = engine.add_process_set({1, 2}, false, deadline_after(30));
    EXPECT_OK(left);
    EXPECT_OK(right);
    for (int step = 0; step < 20; ++step) {
      std::vector<float> all(9, 1), in_left(5, 1), in_right(3, 1);
      std::vector<Submission> list = {on_gpu(rank, sum_of("all", all))};
      if (rank < 2) list.push_back(on_gpu(rank, sum_of("left", in_left)));
      if (rank < 2) list.back().process_set = *left;
      if (rank > 0) list.push_back(on_gpu(rank, sum_of("right", in_right)));
      if (rank > 0) list.back().process_set = *right;
      if ((rank + step) % 2 == 0) std::reverse(list.begin(), list.end());
      std::vector<HandlePtr> handles;
      for (const Submission& one : list) handles.push_back(engine.submit(std::span(&one, 1))->front());
      EXPECT_OK(engine.wait_all(handles, deadline_after(30)));
      for (const HandlePtr& handle : handles) EXPECT_OK(handle->status());
      EXPECT_EQ(all[8], 3.0F);
      EXPECT_EQ(in_left[4], rank < 2 ? 2.0F : 1.0F);
      EXPECT_EQ(in_right[2], rank > 0 ? 2.0F : 1.0F);
    }
    EXPECT_OK(engine.remove_process_set(*left, deadline_after(30)));
  });
}

TEST_CASE("gpu: a tensor on the CPU of one rank and on the GPU of another is a mismatch", "[nccl]") {
  test::FakeStore store;
  EngineJob job(gpu_job(2, store));
  job.run([&](int rank, Engine& engine) {
    std::vector<float> data(4, 1);
    const Submission plain = sum_of("x", data);
    const HandlePtr handle = finish(engine, rank == 0 ? plain : on_gpu(rank, plain));
    EXPECT(handle->status().code() == Errc::kMismatch);
    EXPECT(handle->status().message().find("cuda") != std::string::npos);
    run(engine, on_gpu(rank, plain));  // the next one works
    EXPECT_EQ(data[0], 2.0F);
  });
}

TEST_CASE("gpu: a second GPU of one rank in a process set is refused where it is submitted", "[nccl]") {
  test::FakeStore store;
  EngineJob job(gpu_job(1, store));
  job.run([&](int, Engine& engine) {
    std::vector<float> data(4, 1);
    run(engine, on_gpu(0, sum_of("x", data)));
    const Submission other = on_gpu(1, sum_of("y", data));
    const auto refused = engine.submit(std::span(&other, 1));
    EXPECT(refused.status().code() == Errc::kInvalidArgument);
    EXPECT(refused.status().message().find("it is on cuda:1, and rank 0's tensors of process set 0 are on cuda:0. Use "
                                           "one GPU per rank and process set") != std::string::npos);
    const auto set = engine.add_process_set({0}, false, deadline_after(30));
    EXPECT_OK(set);
    Submission there = on_gpu(1, sum_of("y", data));
    there.process_set = *set;
    run(engine, there);
  });
}

TEST_CASE("gpu: a peer's death ends what is in flight with the cause", "[nccl]") {
  test::FakeStore store;
  auto options = gpu_job(2, store);
  options.shut_down = false;
  EngineJob job(std::move(options));
  job.run([&](int rank, Engine& engine) {
    std::vector<float> data(4, 1);
    run(engine, on_gpu(rank, sum_of("both", data)));
    if (rank == 1) return job.kill(1);
    const HandlePtr handle = finish(engine, on_gpu(rank, sum_of("alone", data)));
    EXPECT(handle->status().code() == Errc::kRankLost);
  });
}

TEST_CASE("gpu: without a backend for them CUDA tensors fail on all ranks with the reason, and the job goes on",
          "[nccl]") {
  auto options = test::EngineJobOptions{.ranks = 2};
  options.gpu_backend = [](int, const std::vector<int>&, int, net::WaitSet&) {
    return std::make_unique<backend::AbsentBackend>(DeviceType::kCuda,
                                                    Status(Errc::kUnsupported, "nccl: no NVIDIA GPU"));
  };
  EngineJob job(std::move(options));
  job.run([&](int rank, Engine& engine) {
    std::vector<float> data(4, 1);
    Submission one = sum_of("x", data);
    one.device = {.type = DeviceType::kCuda, .index = static_cast<std::int16_t>(rank)};
    for (const OpKind kind : {OpKind::kAllreduce, OpKind::kAllgather}) {
      one.kind = kind;
      const HandlePtr handle = finish(engine, one);
      EXPECT(handle->status().code() == Errc::kUnsupported);
      EXPECT(handle->status().message().find("no NVIDIA GPU") != std::string::npos);
    }
    run(engine, sum_of("y", data));
  });
}

}  // namespace
}  // namespace distrun::engine
