// Shutdown with operations in flight, in whole engines, with ranks as threads.
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runtime/engine/protocol/tensor_key.h"
#include "test/support/engine_ranks.h"

namespace distrun::engine {
namespace {

using test::allreduce;
using test::EngineJob;
using test::submit;

// A rank that notices the loss may or may not have heard before that the rank leaves.
bool is_missed(const Status& status) { return status.code() == Errc::kRankLeft || status.code() == Errc::kRankLost; }

TEST_CASE("a rank that dies when all have left, while something runs, is missed") {
  EngineJob job({.ranks = 3, .backend = {.hangs = 2}, .shut_down = false});
  std::atomic<int> leaving{0};
  job.run([&](int rank, Engine& engine) {
    std::vector<float> memory(4, 1);
    const HandlePtr handle = submit(engine, allreduce("x", memory));
    leaving.fetch_add(1);
    if (rank == 2) {
      while (leaving.load() < 3) std::this_thread::yield();
      EXPECT_EQ(engine.shutdown(deadline_after(0.1)).code(), Errc::kTimeout);
      job.kill(2);
      return;
    }
    const TimePoint start = Clock::now();
    const Status left = engine.shutdown(deadline_after(20));
    EXPECT(is_missed(left));
    if (!left.ok()) EXPECT_EQ(left.info().ranks, std::vector<int>{2});
    EXPECT(handle->done());
    EXPECT(Clock::now() - start < std::chrono::seconds(10));
  });
}

TEST_CASE("a rank that stands in for data after its join goes when that has ended, and tells of its failure") {
  EngineJob job({.ranks = 3, .backend = {.starves = 1}, .shut_down = false});
  job.run([&](int rank, Engine& engine) {
    const Submission join{.kind = OpKind::kJoin, .name = std::string(kJoinName)};
    std::vector<float> memory(4, 1);
    if (rank != 1) (void)submit(engine, allreduce("x", memory));
    const HandlePtr joined = submit(engine, join);
    EXPECT_OK(engine.wait_all(std::span(&joined, 1), deadline_after(20)));
    const TimePoint start = Clock::now();
    EXPECT_EQ(engine.shutdown(deadline_after(rank == 1 ? 0.02 : 20)).code(), Errc::kOutOfMemory);
    EXPECT(Clock::now() - start < std::chrono::seconds(10));
  });
}

TEST_CASE("shutdown with a call in flight is an error that names it, and the rank is missed if it goes all the same") {
  for (const bool goes : {false, true}) {
    EngineJob job({.ranks = 3, .shut_down = false});
    std::atomic<bool> said{false};
    job.run([&](int rank, Engine& engine) {
      if (rank == 1) {
        EXPECT_EQ(engine.add_process_set({0, 1}, true, deadline_after(0.02)).status().code(), Errc::kTimeout);
        const TimePoint deadline = Clock::now();
        std::array<Status, 2> results;  // results of two threads that shut down at once
        {
          const std::jthread other([&] { results[1] = engine.shutdown(deadline); });
          results[0] = engine.shutdown(deadline);
        }
        for (const Status& status : results) {
          EXPECT_EQ(status.code(), Errc::kTimeout);
          EXPECT(status.message().find("adding a process set of ranks 0, 1") != std::string::npos);
        }
        if (goes) job.kill(1);
        said.store(true);
        if (goes) return;
      }
      while (!said.load()) std::this_thread::yield();
      if (rank == 0 && !goes) EXPECT_OK(engine.add_process_set({0, 1}, true, deadline_after(40)));
      const Status left = engine.shutdown(deadline_after(20));
      EXPECT(goes ? is_missed(left) : left.ok());
    });
  }
}

}  // namespace
}  // namespace distrun::engine
