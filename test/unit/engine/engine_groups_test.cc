// A group runs as a whole or not at all, also if the backends cannot do a part of it. Whole engines, ranks as threads.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "runtime/backend/absent_backend.h"
#include "runtime/engine/protocol/tensor_key.h"
#include "test/support/engine_ranks.h"
#include "test/support/text.h"

namespace distrun::engine {
namespace {

using test::allreduce;
using test::EngineJob;

using test::has;

// Submits the two tensors as one group and returns their outcomes.
std::vector<Status> run_both(Engine& engine, Submission a, Submission b) {
  a.group = b.group = 3;
  const auto handles = engine.submit(std::vector<Submission>{std::move(a), std::move(b)});
  EXPECT_OK(handles);
  EXPECT_OK(engine.wait_all(*handles, deadline_after(40)));
  return {handles->front()->status(), handles->back()->status()};
}

void expect_refused(const std::vector<Status>& outcomes, Errc code, const std::string& why) {
  for (const Status& status : outcomes) {
    EXPECT_EQ(status.code(), code);
    EXPECT(status.info().usable);
    EXPECT_OK(has(status.message(), why) ? Status() : status);
  }
}

Submission of_type(Submission one, DType dtype) {
  one.dtype = dtype;
  one.shape = {2};
  return one;
}

Submission on_gpu(Submission one) {
  one.device.type = DeviceType::kCuda;
  return one;
}

TEST_CASE("a group of which the backends cannot do a part fails whole: nothing of it has run") {
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{100}}) {
    EngineJob job({.ranks = 3, .settings = {.cache_capacity = capacity}});
    job.run([&](int, Engine& engine) {
      for (int round = 0; round < 2; ++round) {  // in the second round the names are known by their ids
        std::vector<float> x(4, 1);
        std::vector<float> y(4, 1);
        for (const Status& status : run_both(engine, allreduce("x", x), allreduce("y", y))) EXPECT_OK(status);
        EXPECT_EQ(x[0], 3.0F);
        expect_refused(run_both(engine, allreduce("x", x), of_type(allreduce("y", y), DType::kI64)), Errc::kUnsupported,
                       "tensor 'y': the backend fake has no allreduce of int64");
        expect_refused(run_both(engine, on_gpu(allreduce("y", y)), allreduce("x", x)), Errc::kUnsupported,
                       "tensor 'y': process set 0 has no backend for device cuda");
        EXPECT_EQ(x[0], 3.0F);
        EXPECT_EQ(y[0], 3.0F);
      }
    });
  }
}

TEST_CASE("a group with a tensor on a device that has no backend fails whole, with the reason") {
  test::EngineJobOptions options{.ranks = 2};
  options.gpu_backend = [](int, const std::vector<int>&, int, net::WaitSet&) {
    return std::make_unique<backend::AbsentBackend>(DeviceType::kCuda,
                                                    Status(Errc::kUnsupported, "nccl: no NVIDIA GPU"));
  };
  EngineJob job(std::move(options));
  job.run([&](int, Engine& engine) {
    std::vector<float> x(4, 1);
    std::vector<float> y(4, 1);
    expect_refused(run_both(engine, allreduce("x", x), on_gpu(allreduce("y", y))), Errc::kUnsupported,
                   "tensor 'y': nccl: no NVIDIA GPU");
    EXPECT_EQ(x[0], 1.0F);
  });
}

TEST_CASE("a group that fails so needs nothing of a rank that has joined") {
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    std::vector<float> x(4, 1);
    std::vector<float> y(4, 1);
    if (rank != 2) {
      expect_refused(run_both(engine, allreduce("x", x), of_type(allreduce("y", y), DType::kI64)), Errc::kUnsupported,
                     "no allreduce of int64");
      for (const Status& status : run_both(engine, allreduce("x", x), allreduce("y", y))) EXPECT_OK(status);
      EXPECT_EQ(x[0], 2.0F);
    }
    const auto join = test::submit(engine, Submission{.kind = OpKind::kJoin, .name = std::string(kJoinName)});
    EXPECT_OK(engine.wait_all(std::span(&join, 1), deadline_after(40)));
    EXPECT_OK(join->status());
  });
}

TEST_CASE("ranks of which only one has a part that cannot run hear of the mismatch") {
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    std::vector<float> x(4, 1);
    std::vector<float> y(4, 1);
    const DType dtype = rank == 1 ? DType::kI64 : DType::kF32;
    const auto outcomes = run_both(engine, allreduce("x", x), of_type(allreduce("y", y), dtype));
    for (const Status& outcome : outcomes) {
      EXPECT_EQ(outcome.code(), Errc::kMismatch);
      EXPECT_EQ(outcome.info().tensor, "y");
      EXPECT(outcome.info().ranks == std::vector<int>{1});
    }
    EXPECT_EQ(x[0], 1.0F);
    for (const Status& status : run_both(engine, allreduce("x", x), allreduce("y", y))) EXPECT_OK(status);
  });
}

TEST_CASE("a group of allgathers of which one would be larger than memory fails whole") {
  EngineJob job({.ranks = 2});
  job.run([&](int, Engine& engine) {
    std::vector<float> x(4, 1);
    const Submission small{.kind = OpKind::kAllgather, .name = "x", .shape = {4}, .input = x.data()};
    const Submission large{.kind = OpKind::kAllgather, .name = "y", .shape = {std::int64_t{1} << 60, 0}};
    expect_refused(run_both(engine, small, large), Errc::kInvalidArgument, "is larger than memory can be");
    const auto alone = test::submit(engine, large);
    EXPECT_OK(engine.wait_all(std::span(&alone, 1), deadline_after(40)));
    expect_refused({alone->status()}, Errc::kInvalidArgument, "tensor 'y': the result of the allgather");
  });
}

}  // namespace
}  // namespace distrun::engine
