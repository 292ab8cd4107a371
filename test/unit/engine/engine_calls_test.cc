// Collective calls in whole engines: during a shutdown, late, and over a slow control plane.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "test/support/engine_ranks.h"

namespace distrun::engine {
namespace {

using test::EngineJob;

// Acts like making backends: it is collective over the members, and each member blocks until all have come.
class Meeting {
 public:
  Status come(int set, const std::vector<int>& members) {
    std::unique_lock lock(mutex_);
    ++here_[set];
    changed_.notify_all();
    const bool met = changed_.wait_for(lock, std::chrono::seconds(10),
                                       [&] { return here_[set] == static_cast<int>(members.size()); });
    return met ? Status() : Status(Errc::kTimeout, "some members did not come");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> here_;  // by set
};

TEST_CASE("a call that another thread's shutdown overtakes ends") {
  // The list is long, so that the shutdown falls between the check whether the rank may still call, and the call.
  std::vector<int> ranks(2'000'000);
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const int milliseconds : {0, 5, 10, 20, 40}) {
    EngineJob job({.ranks = 1, .shut_down = false});
    const auto engine = job.make(0);
    std::atomic<bool> calls{false};
    Status called;
    std::jthread caller([&] {
      calls.store(true);
      called = engine->add_process_set(ranks, false, deadline_after(20)).status();
    });
    while (!calls.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    CHECK(engine->shutdown(deadline_after(40)).ok());
    caller.join();
    // If the shutdown did not overtake the call, the call is refused, because there are no such ranks.
    const bool ended = called.code() == Errc::kShutDown || called.code() == Errc::kInvalidArgument;
    CHECK(ended);
  }
}

TEST_CASE("the leader begins to make a set when all members have heard of it") {
  Meeting meeting;
  EngineJob job({.ranks = 4, .messages_at_once = 1, .meet = [&](int set, const std::vector<int>& members) {
                   return meeting.come(set, members);
                 }});
  job.run([](int rank, Engine& engine) {
    for (const std::vector<int>& ranks :
         {std::vector<int>{0, 1, 2, 3}, std::vector<int>{0, 3}, std::vector<int>{1, 2}}) {
      const auto made = engine.add_process_set(ranks, false, deadline_after(40));
      EXPECT_OK(made);
      std::vector<float> memory(1, 1);
      if (std::count(ranks.begin(), ranks.end(), rank) == 0) continue;
      const Submission one{
          .name = "x", .shape = {1}, .process_set = *made, .input = memory.data(), .output = memory.data()};
      const auto handles = engine.submit(std::span(&one, 1));
      EXPECT_OK(handles);
      EXPECT_OK(engine.wait_all(*handles, deadline_after(40)));
      EXPECT_EQ(memory[0], static_cast<float>(ranks.size()));
    }
  });
}

TEST_CASE("the first member of a set, and it alone, is told when all have made it, or when one could not") {
  std::mutex mutex;
  std::vector<std::pair<int, int>> set_decided;  // rank, set
  EngineJob job(
      {.ranks = 3,
       .meet = [](int set, const std::vector<int>&) { return set == 2 ? Status(Errc::kUnsupported, "no") : Status(); },
       .set_decided =
           [&](int rank, int set) {
             const std::lock_guard lock(mutex);
             set_decided.emplace_back(rank, set);
           }});
  job.run([](int, Engine& engine) {
    EXPECT_EQ(*engine.add_process_set({1, 2}, false, deadline_after(40)), 1);
    EXPECT(!engine.add_process_set({0, 1}, false, deadline_after(40)).ok());
  });
  CHECK(set_decided == std::vector<std::pair<int, int>>{{1, 1}, {0, 2}});
}

TEST_CASE("a call apart that was given up is what the next one for its ranks goes on with") {
  constexpr int kThreads = 3;
  EngineJob job({.ranks = 2});
  std::atomic<int> given_up{0};
  job.run([&](int rank, Engine& engine) {
    const auto add = [&] {
      const TimePoint late = deadline_after(20);
      for (;;) {
        const auto made = engine.add_process_set_apart({1, 0}, deadline_after(0.02));
        if (made.ok()) return *made;
        if (made.status().code() != Errc::kTimeout || Clock::now() > late) return -1;
        ++given_up;
      }
    };
    while (rank == 1 && given_up.load() < 3 * kThreads) std::this_thread::yield();
    for (int round = 0; round < 2; ++round) {  // the second round is independent of the first
      std::vector<int> sets(kThreads);
      {
        std::vector<std::jthread> threads;
        for (int& set : sets) threads.emplace_back([&] { set = add(); });
      }
      std::sort(sets.begin(), sets.end());
      for (int i = 0; i < kThreads; ++i) EXPECT_EQ(sets[static_cast<std::size_t>(i)], round * kThreads + i + 1);
    }
  });
}

TEST_CASE("what comes of a call apart that was given up waits for the next one, a failure too") {
  EngineJob job({.ranks = 2, .meet = [](int set, const std::vector<int>&) {
                   return set == 2 ? Status(Errc::kUnsupported, "no") : Status();
                 }});
  std::atomic<int> given_up{0};
  job.run([&](int rank, Engine& engine) {
    const auto add = [&](TimePoint deadline) { return engine.add_process_set_apart({0, 1}, deadline); };
    for (const int set : {1, 2, 3}) {
      if (rank == 0 && set < 3) {
        EXPECT_EQ(add(TimePoint::min()).status().code(), Errc::kTimeout);
        given_up.store(set);
      }
      while (set < 3 && given_up.load() < set) std::this_thread::yield();
      const auto made = add(deadline_after(20));
      EXPECT_EQ(made.ok() ? *made : 2, set);
      EXPECT_EQ(made.status().code(), set == 2 ? Errc::kUnsupported : Errc::kOk);
    }
  });
}

TEST_CASE(
    "nothing runs while a member is far behind with the log, or all are, and all of it when they have caught up") {
  const bool all = GENERATE(false, true);
  EngineJob job({.ranks = 2});
  std::atomic<int> late{0};
  job.control().report_queued(
      {.most = all ? 1 : (std::size_t{64} << 20) + 1, .all = (std::size_t{all ? 1024U : 64U} << 20) + 1});
  job.run([&](int rank, Engine& engine) {
    std::vector<float> memory(1, 1);
    const Submission one{.name = "x", .shape = {1}, .input = memory.data(), .output = memory.data()};
    const auto handles = engine.submit(std::span(&one, 1));
    EXPECT_OK(handles);
    EXPECT_EQ(engine.wait_all(*handles, deadline_after(0.05)).code(), Errc::kTimeout);
    if (++late == 2) {
      job.control().report_queued({});
      job.wait_set(0).wake();
    }
    EXPECT_OK(engine.wait_all(*handles, deadline_after(40)));
    EXPECT_EQ(memory[0], 2.0F);
    EXPECT(rank >= 0);
  });
}

}  // namespace
}  // namespace distrun::engine
