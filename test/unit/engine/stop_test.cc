#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <thread>

#include "runtime/engine/agreement/stop_agreement.h"
#include "runtime/engine/callers/stop_point.h"
#include "test/support/engine_ranks.h"

namespace distrun::engine {
namespace {

using test::EngineJob;

TEST_CASE("a call costs nothing and says no until the ranks hold") {
  StopPoint point;
  CHECK(point.count().number == 1);
  const auto second = point.count();
  CHECK((second.number == 2 && !second.held));
  CHECK(point.hold() == 2);
  const auto third = point.count();
  CHECK((third.number == 3 && third.held));
  CHECK_FALSE(point.known());
  point.take_back();
  CHECK(point.count().number == 3);
  point.decide(4);
  CHECK(point.known());
  CHECK_FALSE(point.reached(3));
  CHECK(point.reached(4));
  CHECK(point.reached(5));
}

TEST_CASE("ranks stop at the first call that none has answered") {
  StopAgreement agreement(3);
  agreement.counted(1, 99);  // no rank has asked yet
  CHECK_FALSE(agreement.take());
  CHECK(agreement.asked("SIGTERM"));
  CHECK_FALSE(agreement.asked("again"));
  CHECK(agreement.cause() == "SIGTERM");
  agreement.counted(0, 7);
  CHECK_FALSE(agreement.take());
  agreement.left(2);  // a rank that makes no more calls is not waited for
  CHECK(agreement.take() == 100);
  CHECK_FALSE(agreement.take());
}

// The number of calls that each rank makes until it must stop. The ranks may be any number of calls apart.
std::vector<int> calls_until_stop(int ranks, unsigned seed,
                                  const std::function<void(EngineJob&, int, Engine&, int)>& at) {
  EngineJob job({.ranks = ranks});
  std::vector<int> calls(static_cast<std::size_t>(ranks));
  job.run([&](int rank, Engine& engine) {
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    for (int call = 1;; ++call) {
      at(job, rank, engine, call);
      const auto stop = engine.should_stop(false);
      EXPECT_OK(stop.status());
      if (*stop) {
        calls[static_cast<std::size_t>(rank)] = call;
        EXPECT(*engine.should_stop(false));
        return;
      }
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
  });
  CHECK(job.channel(0).stops().size() == 1);
  return calls;
}

TEST_CASE("all ranks stop at the same call, whoever asks and wherever they are") {
  for (unsigned round = 0; round < 20; ++round) {
    const int ranks = 1 + static_cast<int>(round % 5);
    const int asking = static_cast<int>(round) % ranks;
    const auto calls = calls_until_stop(ranks, round, [&](EngineJob&, int rank, Engine& engine, int call) {
      if (rank == asking && call == 20) engine.request_stop("test");
      if (rank != asking && call == 25) engine.request_stop("another test");
    });
    for (const int one : calls) CHECK((one == calls.front() && one > 0));
  }
}

TEST_CASE("the launcher may ask") {
  const auto calls = calls_until_stop(3, 1, [](EngineJob& job, int rank, Engine&, int call) {
    if (rank == 1 && call == 10) job.tell_all({.kind = net::JobEvent::Kind::kStopAsked, .cause = "SIGTERM"});
  });
  for (const int one : calls) CHECK(one == calls.front());
}

TEST_CASE("who asks in a call and is behind nobody is answered in it") {
  EngineJob job({.ranks = 3});
  std::atomic<bool> answered{false};
  job.run([&](int rank, Engine& engine) {
    if (rank == 2) answered = *engine.should_stop(true);
    while (!answered) std::this_thread::yield();
    EXPECT(*engine.should_stop(false));
  });
}

TEST_CASE("a rank that never asks holds nobody up, nor does one that has left") {
  EngineJob job({.ranks = 3});
  std::atomic<int> left{0};
  job.run([&](int rank, Engine& engine) {
    if (rank == 2) return;
    if (rank == 1) {
      EXPECT(!*engine.should_stop(false));
      ++left;
      return;
    }
    while (left == 0) std::this_thread::yield();
    int calls = 1;
    while (!*engine.should_stop(calls == 5)) ++calls;
    EXPECT(calls == 5);
  });
}

TEST_CASE("a rank that waits for the others learns of a death") {
  EngineJob job({.ranks = 2, .shut_down = false});
  job.run([&](int rank, Engine& engine) {
    if (rank == 1) return;
    job.kill(1);
    const auto stop = engine.should_stop(true);
    EXPECT(stop.status().code() == Errc::kRankLost);
  });
}

}  // namespace
}  // namespace distrun::engine
