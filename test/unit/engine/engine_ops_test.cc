// All operations through whole engines, with ranks as threads.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <random>

#include "runtime/base/settings.h"
#include "test/support/engine_ranks.h"
#include "test/support/page_advice.h"

namespace distrun::engine {
namespace {

using test::allreduce;
using test::EngineJob;
using test::submit;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 8};

void wait_for(Engine& engine, const HandlePtr& handle) {
  EXPECT_OK(engine.wait_all(std::span(&handle, 1), deadline_after(30)));
}

void run(Engine& engine, const Submission& one) {
  const HandlePtr handle = submit(engine, one);
  wait_for(engine, handle);
  EXPECT_OK(handle->status());
}

float sum_of_ranks(int ranks) { return static_cast<float>(ranks * (ranks + 1)) / 2; }

TEST_CASE("allreduce: every reduce operation, in place and out of place, scaled") {
  for (const int ranks : kSizes) {
    for (const bool scatter_gather : {true, false}) {
      EngineJob job({.ranks = ranks, .backend = {.scatter_gather = scatter_gather}});
      job.run([&](int rank, Engine& engine) {
        const float mine = static_cast<float>(rank + 1);
        const float n = static_cast<float>(ranks);
        float product = 1;
        for (int r = 1; r <= ranks; ++r) product *= static_cast<float>(r);
        const std::pair<ReduceOp, float> expected[] = {{ReduceOp::kSum, sum_of_ranks(ranks)},
                                                       {ReduceOp::kAverage, sum_of_ranks(ranks) / n},
                                                       {ReduceOp::kMin, 1.0F},
                                                       {ReduceOp::kMax, n},
                                                       {ReduceOp::kProduct, product}};
        for (const auto& [op, value] : expected) {
          std::vector<float> memory(5, mine);
          std::vector<float> out(5, -1);
          Submission one = allreduce("x", memory);
          one.reduce = op;
          one.output = out.data();
          run(engine, one);
          EXPECT_EQ(out[0], value);
          EXPECT_EQ(out[4], value);
          EXPECT_EQ(memory[2], mine);
          one.output = memory.data();
          one.postscale = 4;
          run(engine, one);
          EXPECT_EQ(memory[3], 4 * value);
        }
        std::vector<float> memory(3, mine);
        Submission scaled = allreduce("scaled", memory);
        scaled.prescale = 0.5;
        run(engine, scaled);
        EXPECT_EQ(memory[1], sum_of_ranks(ranks) / 2);
      });
    }
  }
}

// docs/reference/numerics.md: the division comes first, and the result is rounded once, at the end.
TEST_CASE("an average of integers that is scaled is not rounded in between, whether the backend scales or not") {
  for (const bool scatter_gather : {true, false}) {
    EngineJob job({.ranks = 2, .backend = {.scatter_gather = scatter_gather}});
    job.run([&](int rank, Engine& engine) {
      const std::vector<std::int32_t> in(2, rank == 0 ? 3 : 2);
      std::vector<std::int32_t> out(2, -1);
      for (const OpKind kind : {OpKind::kAllreduce, OpKind::kReducescatter}) {
        for (const auto& [prescale, postscale, expected] :
             {std::array{1.0, 2.0, 5.0}, std::array{2.0, 0.5, 2.0}, std::array{2.0, 1.0, 5.0}}) {
          run(engine, {.kind = kind,
                       .name = "x",
                       .dtype = DType::kI32,
                       .shape = {2},
                       .reduce = ReduceOp::kAverage,
                       .prescale = prescale,
                       .postscale = postscale,
                       .input = in.data(),
                       .output = out.data()});
          EXPECT_EQ(out[0], static_cast<std::int32_t>(expected));
        }
      }
    });
  }
}

TEST_CASE("allgather with different first dimensions, changing from step to step") {
  for (const int ranks : kSizes) {
    EngineJob job({.ranks = ranks});
    job.run([&](int rank, Engine& engine) {
      for (int step = 0; step < 6; ++step) {
        const auto rows_of = [&](int r) { return static_cast<std::int64_t>((r + step / 2) % 4); };
        std::vector<float> memory(static_cast<std::size_t>(2 * rows_of(rank)), static_cast<float>(rank));
        const Submission one{
            .kind = OpKind::kAllgather, .name = "g", .shape = {rows_of(rank), 2}, .input = memory.data()};
        const HandlePtr handle = submit(engine, one);
        wait_for(engine, handle);
        EXPECT_OK(handle->status());
        const Output& output = handle->output();
        std::vector<float> expected;
        for (int r = 0; r < ranks; ++r) {
          EXPECT_EQ(output.first_dims[static_cast<std::size_t>(r)], rows_of(r));
          expected.insert(expected.end(), static_cast<std::size_t>(2 * rows_of(r)), static_cast<float>(r));
        }
        EXPECT_EQ(output.shape[0], static_cast<std::int64_t>(expected.size() / 2));
        EXPECT_EQ(output.shape[1], 2);
        EXPECT_EQ(output.bytes, expected.size() * sizeof(float));
        EXPECT(std::memcmp(output.gathered.get(), expected.data(), output.bytes) == 0);
      }
    });
  }
}

TEST_CASE("broadcast from every root, in place and out of place; barrier") {
  for (const int ranks : kSizes) {
    EngineJob job({.ranks = ranks});
    job.run([&](int rank, Engine& engine) {
      for (int root = 0; root < ranks; ++root) {
        std::vector<float> memory(4, static_cast<float>(rank));
        std::vector<float> out(4, -1);
        Submission one = allreduce("b", memory);
        one.kind = OpKind::kBroadcast;
        one.root = root;
        one.output = out.data();
        run(engine, one);
        EXPECT_EQ(out[3], static_cast<float>(root));
        one.output = memory.data();
        run(engine, one);
        EXPECT_EQ(memory[0], static_cast<float>(root));
        run(engine, {.kind = OpKind::kBarrier, .name = "barrier"});
      }
    });
  }
}

TEST_CASE("a barrier holds everybody until the last has come") {
  EngineJob job({.ranks = 4});
  std::atomic<int> arrived{0};
  job.run([&](int, Engine& engine) {
    for (int round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);
      run(engine, {.kind = OpKind::kBarrier, .name = "barrier"});
      EXPECT(arrived.load() >= 4 * round);
      run(engine, {.kind = OpKind::kBarrier, .name = "release"});
    }
  });
}

TEST_CASE("any order on any rank, some empty, some large, all caches") {
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{1024}}) {
    for (const int ranks : kSizes) {
      EngineJob job({.ranks = ranks, .settings = {.fusion_threshold = 4096, .cache_capacity = capacity}});
      job.run([&](int rank, Engine& engine) {
        std::mt19937 random(static_cast<unsigned>(rank) + 1);
        for (int step = 0; step < 5; ++step) {
          std::vector<std::vector<float>> tensors;
          for (std::size_t i = 0; i < 40; ++i) {
            tensors.emplace_back(i % 10 == 0 ? 0 : i * 17, static_cast<float>(rank + 1) * static_cast<float>(i));
          }
          std::vector<std::size_t> order(tensors.size());
          std::iota(order.begin(), order.end(), 0);
          std::shuffle(order.begin(), order.end(), random);
          std::vector<HandlePtr> handles;
          for (const std::size_t i : order) {
            handles.push_back(submit(engine, allreduce("t" + std::to_string(i), tensors[i])));
          }
          EXPECT_OK(engine.wait_all(handles, deadline_after(30)));
          for (const HandlePtr& handle : handles) EXPECT_OK(handle->status());
          for (std::size_t i = 0; i < tensors.size(); ++i) {
            for (const float value : tensors[i]) EXPECT_EQ(value, sum_of_ranks(ranks) * static_cast<float>(i));
          }
        }
      });
    }
  }
}

TEST_CASE("large outputs are asked huge pages for, unless they are the input or the setting says no") {
  if (!test::has_huge_pages()) SKIP("this kernel has no transparent huge pages");
  constexpr std::size_t kBytes = 36U << 20U;
  for (const bool huge_pages : {true, false}) {
    EngineJob job({.ranks = 2, .settings = {.huge_pages = huge_pages}});
    job.run([&](int, Engine& engine) {
      const test::Fresh in(kBytes);
      const test::Fresh out(kBytes);
      // This operation only moves data: under ThreadSanitizer, additions of this size take most of a minute.
      Submission one{.kind = OpKind::kBroadcast,
                     .name = "in place",
                     .shape = {static_cast<std::int64_t>(kBytes / sizeof(float))},
                     .input = in.data(),
                     .output = in.data()};
      run(engine, one);
      EXPECT_EQ(test::wants_huge_pages(in.data() + kBytes / 2), false);
      one.name = "out of place";
      one.output = out.data();
      run(engine, one);
      EXPECT_EQ(test::wants_huge_pages(out.data() + kBytes / 2), huge_pages);
      one.name = "gathered";
      one.kind = OpKind::kAllgather;
      const HandlePtr handle = submit(engine, one);
      wait_for(engine, handle);
      EXPECT_EQ(test::wants_huge_pages(handle->output().gathered.get() + kBytes), huge_pages);
    });
  }
}

TEST_CASE("a group runs as one operation, packed where the backend wants it") {
  for (const bool scatter_gather : {true, false}) {
    EngineJob job({.ranks = 3, .backend = {.scatter_gather = scatter_gather}});
    job.run([&](int rank, Engine& engine) {
      std::vector<std::vector<float>> tensors(10, std::vector<float>(3, static_cast<float>(rank)));
      std::vector<Submission> group;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        group.push_back(allreduce("t" + std::to_string(i), tensors[i]));
        group.back().group = 0;
        group.back().prescale = 2;
      }
      const auto handles = engine.submit(group);
      EXPECT_OK(handles);
      EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
      for (const auto& tensor : tensors) EXPECT_EQ(tensor[2], 6.0F);
    });
    CHECK(job.fabric().operations() == 1);
    CHECK(job.fabric().most_segments() == (scatter_gather ? 10U : 1U));
  }
}

TEST_CASE("the engine's settings begin as the table of all settings has them") {
  const Settings table;
  const EngineSettings own;
  CHECK(own.fusion_threshold == table.fusion_threshold);
  CHECK(own.cache_capacity == table.cache_capacity);
  CHECK(own.stall_warning_time == table.stall_warning_time);
  CHECK(own.stall_shutdown_time == table.stall_shutdown_time);
  CHECK(own.deadlock_time == table.deadlock_time);
  CHECK(own.huge_pages == table.huge_pages);
  CHECK(own.timeline_max_size == table.timeline_max_size);
}

TEST_CASE("the settings of fusion and of the cache are the coordinator's") {
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
    EngineJob job({.ranks = 2, .settings = {.fusion_threshold = limit, .cache_capacity = limit == 0 ? 0U : 16U}});
    std::array<std::size_t, 3> said{};  // bytes that rank 1 has sent up to each step
    job.run([&](int rank, Engine& engine) {
      std::vector<std::vector<float>> tensors(10, std::vector<float>(3, 1));
      std::vector<Submission> batch;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        batch.push_back(allreduce("a name of some length " + std::to_string(i), tensors[i]));
      }
      for (std::size_t step = 0; step < 2; ++step) {
        const auto handles = engine.submit(batch);
        EXPECT_OK(handles);
        EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
        if (rank == 1) said.at(step + 1) = job.control().bytes_from(1);
      }
    });
    CHECK(job.fabric().operations() == (limit == 0 ? 20 : 2));
    const std::size_t again = said[2] - said[1];
    if (limit == 0) CHECK(again == said[1]);
    if (limit > 0) CHECK(again < said[1] / 3);  // numbers are sent instead of requests
  }
}

TEST_CASE("a backend that cannot run operations of two groups at once gets one at a time, whatever their groups") {
  EngineJob job({.ranks = 3, .backend = {.exclusive = true}});
  job.run([&](int rank, Engine& engine) {
    const auto pair = engine.add_process_set({0, 1}, false, deadline_after(30));
    EXPECT_OK(pair);
    std::vector<std::vector<float>> tensors(40, std::vector<float>(3, static_cast<float>(rank)));
    std::vector<Submission> batch;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bool in_pair = i % 2 == 1;
      if (in_pair && rank == 2) continue;
      batch.push_back(allreduce("t" + std::to_string(i), tensors[i]));
      batch.back().process_set = in_pair ? *pair : 0;
    }
    // Each rank submits in a different order.
    if (rank == 1) std::ranges::reverse(batch);
    const auto handles = engine.submit(batch);
    EXPECT_OK(handles);
    EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (i % 2 == 0) EXPECT_EQ(tensors[i][2], 3.0F);
      if (i % 2 == 1 && rank < 2) EXPECT_EQ(tensors[i][2], 1.0F);
    }
  });
  CHECK(job.fabric().most_in_flight() == 1);
}

TEST_CASE("on a device an exclusive operation starts when nothing else is there") {
  test::FakeFabric* fabric = nullptr;
  EngineJob job({.ranks = 3, .gpu_backend = [&](int set, const std::vector<int>& members, int rank, net::WaitSet&) {
                   return fabric->backend(100 + set, members, rank, {.exclusive = set == 0});
                 }});
  fabric = &job.fabric();
  job.run([&](int rank, Engine& engine) {
    const auto pair = engine.add_process_set({0, 1}, false, deadline_after(30));
    EXPECT_OK(pair);
    for (int step = 0; step < 10; ++step) {
      std::vector<float> a(3, static_cast<float>(rank)), b(3, static_cast<float>(rank));
      std::vector<Submission> batch = {allreduce("a", a), allreduce("b", b)};
      batch[0].process_set = *pair;
      for (Submission& one : batch) one.device = {.type = DeviceType::kCuda, .index = static_cast<std::int16_t>(rank)};
      if (rank == 2) batch.erase(batch.begin());
      // Both are ready when the pair arrives with them, so they are adjacent in the log.
      if (rank < 2) run(engine, {.kind = OpKind::kBarrier, .name = "the third rank has come"});
      const auto handles = engine.submit(batch);
      EXPECT_OK(handles);
      if (rank == 2) run(engine, {.kind = OpKind::kBarrier, .name = "the third rank has come"});
      EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
      EXPECT_EQ(a[2], rank < 2 ? 1.0F : 2.0F);
      EXPECT_EQ(b[2], 3.0F);
    }
  });
  CHECK(job.fabric().most_in_flight() == 1);
}

TEST_CASE("16 threads of each rank submit and wait") {
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    std::vector<std::jthread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 40; ++i) {
          std::vector<float> memory(8, static_cast<float>(rank + t));
          const Submission one = allreduce(std::to_string(t) + "." + std::to_string(i % 4), memory);
          auto handles = engine.submit(std::span(&one, 1));
          const bool ok = handles.ok() && engine.wait_any(*handles, deadline_after(30)).ok();
          if (!ok || !handles->front()->status().ok() || memory[7] != static_cast<float>(3 * t + 3)) ++wrong;
        }
      });
    }
    threads.clear();
    EXPECT_EQ(wrong.load(), 0);
  });
}

TEST_CASE("without a background thread, waiting callers do all the work") {
  EngineJob job({.ranks = 3, .background_thread = false});
  job.run([&](int rank, Engine& engine) {
    for (int i = 0; i < 50; ++i) {
      std::vector<float> memory(8, static_cast<float>(rank));
      run(engine, allreduce("x", memory));
      EXPECT_EQ(memory[0], 3.0F);
    }
  });
}

// No event wakes a rank that has started before the others, with or without a caller that waits.
TEST_CASE("what moves only while it is asked is asked until it is done") {
  for (const bool waits : {true, false}) {
    EngineJob job({.ranks = 3, .backend = {.moved_by = backend::MovedBy::kCalls}});
    job.run([&](int rank, Engine& engine) {
      for (int step = 0; step < 20; ++step) {
        std::vector<float> memory(5, static_cast<float>(rank + 1));
        const HandlePtr handle = submit(engine, allreduce("x", memory));
        if (waits) wait_for(engine, handle);
        const TimePoint deadline = deadline_after(30);
        while (!handle->done() && Clock::now() < deadline) std::this_thread::yield();
        EXPECT_OK(handle->status());
        EXPECT(memory == std::vector<float>(5, sum_of_ranks(3)));
      }
    });
  }
}

TEST_CASE("while a library's own threads move everything, callers still hear of its end") {
  EngineJob job({.ranks = 2, .backend = {.moved_by = backend::MovedBy::kOwnThread}});
  job.run([&](int rank, Engine& engine) {
    for (int step = 0; step < 20; ++step) {
      std::vector<float> memory(5, static_cast<float>(rank + 1));
      run(engine, allreduce("x", memory));
      EXPECT(memory == std::vector<float>(5, sum_of_ranks(2)));
    }
  });
}

TEST_CASE("polling a handle is enough: the engine's thread works while nobody waits") {
  EngineJob job({.ranks = 2});
  job.run([&](int, Engine& engine) {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> memory(8, 1);
      const HandlePtr handle = submit(engine, allreduce("x", memory));
      const TimePoint deadline = deadline_after(30);
      while (!handle->done() && Clock::now() < deadline) std::this_thread::yield();
      EXPECT(handle->done());
      EXPECT_EQ(memory[0], 2.0F);
    }
  });
}

}  // namespace
}  // namespace distrun::engine
