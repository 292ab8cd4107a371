// Operations with a different part for each rank, and ranks that have run out of data.
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include "runtime/engine/readiness/parts.h"
#include "runtime/engine/run/stand_in.h"
#include "test/support/engine_ranks.h"

namespace distrun::engine {
namespace {

using test::allreduce;
using test::EngineJob;

constexpr int kShareSizes[] = {1, 2, 3, 4, 5, 8};

HandlePtr finish(Engine& engine, const Submission& one) {
  auto handles = engine.submit(std::span(&one, 1));
  EXPECT_OK(handles);
  EXPECT_OK(engine.wait_all(*handles, deadline_after(30)));
  return handles->front();
}

void run_one(Engine& engine, const Submission& one) { EXPECT_OK(finish(engine, one)->status()); }

Submission join(int set = 0) { return {.kind = OpKind::kJoin, .name = std::string(kJoinName), .process_set = set}; }

// Rows that rank i sends to rank j.
std::int64_t sent(int i, int j, int step) { return (i + 2 * j + step / 2) % 3; }

void check_alltoall(int rank, int ranks, Engine& engine, int step) {
  std::vector<float> memory;
  std::vector<std::int64_t> splits;
  for (int to = 0; to < ranks; ++to) {
    splits.push_back(sent(rank, to, step));
    memory.insert(memory.end(), static_cast<std::size_t>(2 * splits.back()), static_cast<float>(10 * rank + to));
  }
  memory.resize(memory.size() + 4, -1);  // two rows that are sent to no rank
  const HandlePtr handle = finish(engine, {.kind = OpKind::kAlltoall,
                                           .name = "a",
                                           .shape = {static_cast<std::int64_t>(memory.size() / 2), 2},
                                           .input = memory.data(),
                                           .splits = splits});
  EXPECT_OK(handle->status());
  std::vector<float> expected;
  for (int from = 0; from < ranks; ++from) {
    EXPECT_EQ(handle->output().first_dims[static_cast<std::size_t>(from)], sent(from, rank, step));
    expected.insert(expected.end(), static_cast<std::size_t>(2 * sent(from, rank, step)),
                    static_cast<float>(10 * from + rank));
  }
  EXPECT_EQ(handle->output().shape[0], static_cast<std::int64_t>(expected.size() / 2));
  EXPECT_EQ(handle->output().bytes, expected.size() * sizeof(float));
  EXPECT(std::memcmp(handle->output().gathered.get(), expected.data(), handle->output().bytes) == 0);
}

}  // namespace

TEST_CASE("alltoall: splits that change from step to step, and rows that go to nobody") {
  for (const int ranks : kShareSizes) {
    EngineJob job({.ranks = ranks});
    job.run([&](int rank, Engine& engine) {
      for (int step = 0; step < 6; ++step) check_alltoall(rank, ranks, engine, step);
    });
  }
}

TEST_CASE("alltoall: equal shares of rows that differ between ranks") {
  for (const int ranks : kShareSizes) {
    EngineJob job({.ranks = ranks});
    job.run([&](int rank, Engine& engine) {
      for (int step = 0; step < 4; ++step) {
        const auto rows_of = [&](int r) { return static_cast<std::int64_t>((r + step / 2) % 3); };
        std::vector<float> memory(static_cast<std::size_t>(rows_of(rank) * ranks), static_cast<float>(rank));
        const HandlePtr handle = finish(
            engine, {.kind = OpKind::kAlltoall, .name = "e", .shape = {rows_of(rank) * ranks}, .input = memory.data()});
        EXPECT_OK(handle->status());
        std::size_t at = 0;
        for (int from = 0; from < ranks; ++from) {
          EXPECT_EQ(handle->output().first_dims[static_cast<std::size_t>(from)], rows_of(from));
          for (std::int64_t i = 0; i < rows_of(from); ++i, ++at) {
            float value = 0;
            std::memcpy(&value, handle->output().gathered.get() + at * sizeof(float), sizeof(float));
            EXPECT_EQ(value, static_cast<float>(from));
          }
        }
      }
    });
  }
}

TEST_CASE("alltoall: wrong splits of one rank are an error on all, and the next operation works") {
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    std::vector<float> memory(6);
    const std::array<std::pair<std::vector<std::int64_t>, const char*>, 4> wrong = {
        {{{3, 2, 2}, "more than"}, {{3, 3}, "2 splits"}, {{-1, 3, 3}, "negative"}, {{1, 1, 1, 1}, "4 splits"}}};
    for (const auto& [splits, text] : wrong) {
      Submission one{.kind = OpKind::kAlltoall, .name = "a", .shape = {6}, .input = memory.data()};
      if (rank == 1) one.splits = splits;
      const Status status = finish(engine, one)->status();
      EXPECT(status.code() == Errc::kInvalidArgument);
      EXPECT(status.message().find(text) != std::string::npos);
      EXPECT(status.message().find("rank 1") != std::string::npos);
      EXPECT_EQ(status.info().ranks.size(), 1U);
    }
    const Submission differing{
        .kind = OpKind::kAlltoall, .name = "a", .shape = {rank == 2 ? 5 : 6}, .input = memory.data()};
    EXPECT(finish(engine, differing)->status().message().find("cannot be divided equally") != std::string::npos);
    const Submission scalar{.kind = OpKind::kAlltoall, .name = "s", .input = memory.data()};
    EXPECT(finish(engine, scalar)->status().code() == Errc::kInvalidArgument);
    check_alltoall(rank, 3, engine, 0);
  });
}

TEST_CASE("reducescatter: uneven rows, reductions and scales, whether the backend scales or not") {
  for (const int ranks : kShareSizes) {
    for (const bool scatter_gather : {true, false}) {
      EngineJob job({.ranks = ranks, .backend = {.scatter_gather = scatter_gather}});
      job.run([&](int rank, Engine& engine) {
        for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{13}}) {
          std::vector<float> in(static_cast<std::size_t>(2 * rows));
          for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) * static_cast<float>(rank + 1);
          const auto self = static_cast<std::size_t>(rank);
          const std::int64_t share = share_of(rows, static_cast<std::size_t>(ranks), self);
          std::int64_t before = 0;
          for (std::size_t r = 0; r < self; ++r) before += share_of(rows, static_cast<std::size_t>(ranks), r);
          std::vector<float> out(static_cast<std::size_t>(2 * share), -1);
          for (const double prescale : {1.0, 2.0}) {
            const HandlePtr handle = finish(engine, {.kind = OpKind::kReducescatter,
                                                     .name = "r",
                                                     .shape = {rows, 2},
                                                     .prescale = prescale,
                                                     .postscale = 0.5,
                                                     .input = in.data(),
                                                     .output = out.data()});
            EXPECT_OK(handle->status());
            EXPECT_EQ(handle->output().shape[0], share);
            EXPECT_EQ(handle->output().bytes, out.size() * sizeof(float));
            const float sum = static_cast<float>(ranks * (ranks + 1)) / 2 * static_cast<float>(prescale * 0.5);
            for (std::size_t i = 0; i < out.size(); ++i) {
              EXPECT_EQ(out[i], sum * static_cast<float>(static_cast<std::size_t>(2 * before) + i));
            }
          }
        }
      });
    }
  }
}

TEST_CASE("reducescatter: what is wrong in memory is refused here, what differs everywhere") {
  EngineJob job({.ranks = 2});
  job.run([&](int rank, Engine& engine) {
    std::vector<float> memory(8);
    Submission one{
        .kind = OpKind::kReducescatter, .name = "r", .shape = {4}, .input = memory.data(), .output = memory.data()};
    EXPECT(engine.submit(std::span(&one, 1)).status().message().find("separate memory for the share") !=
           std::string::npos);
    one.output = memory.data() + 4;
    one.reduce = rank == 0 ? ReduceOp::kSum : ReduceOp::kMax;
    EXPECT(finish(engine, one)->status().message().find("reduce operations differ") != std::string::npos);
    one.reduce = ReduceOp::kSum;
    one.shape = {};
    EXPECT(finish(engine, one)->status().message().find("reducescatter of a tensor with 0 dimensions") !=
           std::string::npos);
    one.shape = {4};
    run_one(engine, one);
  });
}

TEST_CASE("join: ranks that run out of data take part with the neutral element") {
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{1024}}) {
    for (const int ranks : kShareSizes) {
      EngineJob job({.ranks = ranks, .settings = {.cache_capacity = capacity}});
      job.run([&](int rank, Engine& engine) {
        for (int epoch = 0; epoch < 3; ++epoch) {
          // Rank r has r + 1 steps in the first epoch, and another number later.
          const auto steps_of = [&](int r) { return 1 + (r + epoch) % ranks; };
          for (int step = 0; step < steps_of(rank); ++step) {
            float sum = 0;
            float least = static_cast<float>(ranks);
            for (int r = 0; r < ranks; ++r) {
              if (step >= steps_of(r)) continue;
              sum += static_cast<float>(r + 1);
              least = std::min(least, static_cast<float>(r + 1));
            }
            std::vector<float> a(5, static_cast<float>(rank + 1));
            std::vector<float> b(3, static_cast<float>(rank + 1));
            Submission minimum = allreduce("min", b);
            minimum.reduce = ReduceOp::kMin;
            run_one(engine, allreduce("sum." + std::to_string(step), a));
            run_one(engine, minimum);
            EXPECT_EQ(a[4], sum);
            EXPECT_EQ(b[0], least);
            const Submission gather{.kind = OpKind::kAllgather, .name = "g", .shape = {1}, .input = b.data()};
            const HandlePtr gathered = finish(engine, gather);
            EXPECT_OK(gathered->status());
            for (int r = 0; r < ranks; ++r) {
              EXPECT_EQ(gathered->output().first_dims[static_cast<std::size_t>(r)], step < steps_of(r) ? 1 : 0);
            }
            run_one(engine, {.kind = OpKind::kBarrier, .name = "barrier"});
          }
          const HandlePtr joined = finish(engine, join());
          EXPECT_OK(joined->status());
          EXPECT_EQ(joined->output().first_dims.size(), 1U);
          const auto last = static_cast<int>(joined->output().first_dims[0]);
          EXPECT_EQ(steps_of(last), ranks);  // it had the most steps
        }
        std::vector<float> a(5, 1);
        run_one(engine, allreduce("sum.0", a));
        EXPECT_EQ(a[0], static_cast<float>(ranks));
      });
    }
  }
}

TEST_CASE("join: a group that a joined rank never submitted, and one it had submitted before") {
  EngineJob job({.ranks = 3, .settings = {.fusion_threshold = 64}});
  job.run([&](int rank, Engine& engine) {
    std::vector<std::vector<float>> tensors(6, std::vector<float>(20, 1));
    const auto submit_group = [&](const std::string& name) {
      std::vector<Submission> group;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        group.push_back(allreduce(name + std::to_string(i), tensors[i]));
        group.back().group = 0;
      }
      return *engine.submit(group);
    };
    auto handles = submit_group("early");
    if (rank != 1) {
      EXPECT_OK(engine.wait_all(handles, deadline_after(30)));
      const auto late = submit_group("late");
      EXPECT_OK(engine.wait_all(late, deadline_after(30)));
      for (const HandlePtr& handle : late) EXPECT_OK(handle->status());
      for (const auto& tensor : tensors) EXPECT_EQ(tensor[19], 6.0F);  // 3 ranks, then 2
    }
    run_one(engine, join());
    EXPECT_OK(engine.wait_all(handles, deadline_after(30)));
    for (const HandlePtr& handle : handles) EXPECT_OK(handle->status());
  });
}

TEST_CASE("join: what cannot go on fails with an error that says so; the joined rank can submit nothing meanwhile") {
  EngineJob job({.ranks = 3});
  std::atomic<bool> refused{false};
  job.run([&](int rank, Engine& engine) {
    std::vector<float> memory(6, 1);
    std::vector<float> out(6);
    if (rank == 2) {
      const auto joining = *engine.submit(std::array{join()});
      const Submission more = allreduce("more", memory);
      EXPECT(engine.submit(std::span(&more, 1)).status().message().find("has joined") != std::string::npos);
      EXPECT(engine.submit(std::array{join()}).status().code() == Errc::kDuplicateName);
      refused.store(true);
      EXPECT_OK(engine.wait_all(joining, deadline_after(30)));
      run_one(engine, more);
      return;
    }
    const auto fails = [&](const Submission& one, const char* text) {
      const Status status = finish(engine, one)->status();
      EXPECT(status.code() == Errc::kInvalidArgument);
      EXPECT(status.info().usable);
      EXPECT(status.info().ranks == std::vector<int>{2});
      EXPECT(status.message().find(text) != std::string::npos);
    };
    fails({.kind = OpKind::kAlltoall, .name = "a", .shape = {6}, .input = memory.data()}, "would be lost");
    fails({.kind = OpKind::kReducescatter, .name = "r", .shape = {6}, .input = memory.data(), .output = out.data()},
          "part of the result");
    Submission cast = allreduce("b", memory);
    cast.kind = OpKind::kBroadcast;
    cast.root = 2;
    fails(cast, "one of them is the root");
    cast.root = 1;
    run_one(engine, cast);
    Submission scaled = allreduce("p", memory);
    scaled.reduce = ReduceOp::kMax;
    scaled.prescale = -1;
    fails(scaled, "prescale factor");
    while (!refused.load()) std::this_thread::yield();
    run_one(engine, join());
    Submission more = allreduce("more", memory);
    run_one(engine, more);
  });
}

// Otherwise the counter that names unnamed tensors would restart while one of its names is in flight.
TEST_CASE("join: returns when what was before it has ended here") {
  for (const bool device : {false, true}) {
    std::atomic<bool> held{true};
    const test::FakeBackendOptions holding{.holds = [&](int rank) { return rank == 0 && held; }};
    test::FakeFabric* fabric = nullptr;
    EngineJob job(
        {.backend = holding, .gpu_backend = [&](int set, const std::vector<int>& members, int rank, net::WaitSet&) {
           return fabric->backend(100 + set, members, rank, holding);
         }});
    fabric = &job.fabric();
    job.run([&](int rank, Engine& engine) {
      std::vector<float> a(5, 1);
      Submission sum = allreduce("allreduce.noname.0", a);
      if (device) sum.device = {.type = DeviceType::kCuda, .index = static_cast<std::int16_t>(rank)};
      const HandlePtr before = test::submit(engine, sum);
      const HandlePtr joined = test::submit(engine, join());
      if (rank == 0) {
        EXPECT(engine.wait_all(std::span(&joined, 1), deadline_after(0.2)).code() == Errc::kTimeout);
        EXPECT(!joined->done());
        held = false;
        job.wait_set(0).wake();
      }
      EXPECT_OK(engine.wait_all(std::span(&joined, 1), deadline_after(30)));
      EXPECT_OK(joined->status());
      EXPECT(before->done());
      EXPECT_OK(before->status());
      run_one(engine, sum);
      EXPECT_EQ(a[4], 4.0F);
    });
  }
}

TEST_CASE("join: in one process set while the others run on") {
  EngineJob job({.ranks = 4});
  job.run([&](int rank, Engine& engine) {
    const auto set = engine.add_process_set({0, 1, 2}, false, deadline_after(30));
    EXPECT_OK(set);
    std::vector<float> memory(2, 1);
    if (rank < 3) {
      if (rank != 0) {
        Submission one = allreduce("in set", memory);
        one.process_set = *set;
        run_one(engine, one);
        EXPECT_EQ(memory[0], 2.0F);
      }
      memory.assign(2, 1);
      EXPECT_OK(finish(engine, join(*set))->status());
    }
    run_one(engine, allreduce("all", memory));
    EXPECT_EQ(memory[0], 4.0F);
  });
}

TEST_CASE("join: the neutral element changes nothing, for each reduction and dtype") {
  const auto half = [](const std::vector<std::byte>& bytes) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data(), 2);
    return bits;
  };
  CHECK(half(neutral_element(ReduceOp::kMin, DType::kF16)) == 0x7C00);
  CHECK(half(neutral_element(ReduceOp::kMax, DType::kBF16)) == 0xFF80);
  CHECK(half(neutral_element(ReduceOp::kProduct, DType::kBF16)) == 0x3F80);
  CHECK(neutral_element(ReduceOp::kMin, DType::kBool) == std::vector<std::byte>{std::byte{1}});
  CHECK(neutral_element(ReduceOp::kMax, DType::kBool) == std::vector<std::byte>{std::byte{0}});
  CHECK(neutral_element(ReduceOp::kMax, DType::kI8) == std::vector<std::byte>{std::byte{0x80}});
  CHECK(neutral_element(ReduceOp::kAverage, DType::kI64) == std::vector<std::byte>(8));
  float infinity = 0;
  std::memcpy(&infinity, neutral_element(ReduceOp::kMin, DType::kF32).data(), 4);
  CHECK(std::isinf(infinity));
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      CHECK(neutral_element(static_cast<ReduceOp>(op), static_cast<DType>(dtype)).size() ==
            size_of(static_cast<DType>(dtype)));
    }
  }
}

TEST_CASE("rows of a reducescatter are shared out whole; rows of an alltoall as the log says") {
  CHECK(share_of(7, 3, 0) == 3);
  CHECK(share_of(7, 3, 2) == 2);
  CHECK(share_of(1, 3, 1) == 0);
  CHECK(rows_of(std::vector<std::int64_t>{4, 2}, 2) == std::vector<std::int64_t>{2, 2, 1, 1});
  CHECK(rows_of(std::vector<std::int64_t>{1, 2, 3, 4}, 2) == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(rows_of(std::vector<std::int64_t>{1, 2, 3}, 2).empty());
}

}  // namespace distrun::engine
