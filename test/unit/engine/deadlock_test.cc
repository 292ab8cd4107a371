// Whether all ranks wait for each other forever, for every order of their answers.
#include "runtime/engine/monitoring/deadlock.h"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <random>
#include <string>

#include "runtime/engine/readiness/mismatch.h"

namespace distrun::engine {
namespace {

using net::MainWait;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kBegin{std::chrono::hours(1)};

// The ranks of a job, and the answer that each would give.
struct Ranks {
  explicit Ranks(int count, Duration limit) : watch(count, limit), take_answer(static_cast<std::size_t>(count)) {
    for (auto& one : take_answer) one.wait = MainWait::kForever;
  }
  message::WaitAnswer& operator[](int rank) { return take_answer[static_cast<std::size_t>(rank)]; }

  // Asks whenever it is due, until `end`. The ranks answer `lag` later. Returns when the job ended, or nothing if it
  // did not.
  std::optional<TimePoint> run_until(
      TimePoint end, const std::function<void(TimePoint)>& live = [](TimePoint) {}) {
    while (now < end) {
      const auto due = watch.next(since);
      if (!due || *due >= end) break;
      now = std::max(now, *due);
      live(now);
      const auto round = watch.ask(since, now);
      if (!round) continue;
      ++questions;
      for (std::size_t rank = 0; rank < take_answer.size(); ++rank) {
        if (silent == static_cast<int>(rank)) continue;
        take_answer[rank].round = *round;
        if (watch.take_answer(static_cast<int>(rank), take_answer[rank])) return now;
      }
    }
    now = end;
    return std::nullopt;
  }

  DeadlockWatch watch;
  std::vector<message::WaitAnswer> take_answer;
  std::optional<TimePoint> since = kBegin;  // since then the leader's own work waits
  TimePoint now = kBegin;
  int silent = -1;
  int questions = 0;
};

TEST_CASE("ranks that wait for one another for the whole limit are a deadlock") {
  for (const int limit : {3, 60, 600, 7200}) {
    Ranks ranks(3, seconds(limit));
    const auto ended = ranks.run_until(kBegin + seconds(3 * limit));
    REQUIRE(ended.has_value());
    CHECK(*ended - kBegin >= seconds(limit));
    CHECK(*ended - kBegin <= seconds(limit) + std::max<Duration>(seconds(limit) / 10, seconds(1)) + seconds(60));
  }
}

TEST_CASE("by default it takes ten minutes and half a minute at most, and few questions") {
  Ranks ranks(4, seconds(600));
  const auto ended = ranks.run_until(kBegin + seconds(1000));
  REQUIRE(ended.has_value());
  CHECK(*ended - kBegin <= seconds(630));
  CHECK(ranks.questions <= 22);
}

TEST_CASE("nobody is asked while the leader waits for nothing, before a pause, or with a limit of 0") {
  Ranks ranks(2, seconds(600));
  CHECK(ranks.watch.next(std::nullopt) == std::nullopt);
  CHECK(*ranks.watch.next(kBegin) == kBegin + seconds(30));
  CHECK(ranks.watch.ask(kBegin, kBegin + seconds(29)) == std::nullopt);
  DeadlockWatch off(2, Duration::zero());
  CHECK(off.next(kBegin) == std::nullopt);
  CHECK(off.ask(kBegin, kBegin + std::chrono::hours(10)) == std::nullopt);
}

TEST_CASE("one rank that is outside a wait keeps the job, and the limit counts from when it waits") {
  for (int busy = 0; busy < 3; ++busy) {
    Ranks ranks(3, seconds(60));
    ranks[busy].wait = MainWait::kOutside;
    CHECK(ranks.run_until(kBegin + seconds(7200)) == std::nullopt);
    ranks[busy].wait = MainWait::kForever;
    const auto ended = ranks.run_until(kBegin + seconds(10000));
    REQUIRE(ended.has_value());
    CHECK(*ended - kBegin >= seconds(7260));
  }
}

TEST_CASE("a wait that ends by itself, and something that moves, are no deadlock") {
  Ranks limited(3, seconds(60));
  limited[1].wait = MainWait::kLimited;
  CHECK(limited.run_until(kBegin + seconds(7200)) == std::nullopt);
  Ranks moving(3, seconds(60));
  moving[2].moves = true;
  CHECK(moving.run_until(kBegin + seconds(7200)) == std::nullopt);
}

TEST_CASE("a rank that submits or completes something in between keeps the job") {
  for (int rank = 0; rank < 3; ++rank) {
    Ranks ranks(3, seconds(60));
    TimePoint last = kBegin;
    const auto ended = ranks.run_until(kBegin + seconds(7200), [&](TimePoint now) {
      if (now - last < seconds(40)) return;
      last = now;
      ++ranks[rank].changes;
    });
    CHECK(ended == std::nullopt);
  }
}

TEST_CASE("a process that uses a second of its processor's time in a minute computes") {
  const auto with_share = [](double share, int limit) {
    Ranks ranks(2, seconds(limit));
    return ranks.run_until(kBegin + seconds(20 * limit), [&](TimePoint now) {
      ranks[1].cpu_ns =
          static_cast<std::int64_t>(share * std::chrono::duration<double, std::nano>(now - kBegin).count());
    });
  };
  for (const int limit : {5, 60, 600}) {
    CHECK(with_share(0.1, limit) == std::nullopt);
    CHECK(with_share(0.001, limit).has_value());
  }
  CHECK(with_share(1.1 / 60, 600) == std::nullopt);
  CHECK(with_share(0.9 / 60, 600).has_value());
}

TEST_CASE("a rank that does not answer is none of its business, for as long as it is silent") {
  Ranks ranks(3, seconds(60));
  ranks.silent = 2;
  CHECK(ranks.run_until(kBegin + seconds(7200)) == std::nullopt);
  ranks.silent = -1;
  const auto ended = ranks.run_until(kBegin + seconds(10000));
  REQUIRE(ended.has_value());
  CHECK(*ended - kBegin >= seconds(7260));
}

TEST_CASE("the answer to another question, and a second one to the same, count for nothing") {
  DeadlockWatch watch(2, seconds(1));
  message::WaitAnswer take_answer{.round = 7, .wait = MainWait::kForever};
  CHECK_FALSE(watch.take_answer(0, take_answer));
  for (int round = 1; round < 10; ++round) {
    const auto asked = watch.ask(kBegin, kBegin + seconds(round));
    REQUIRE(asked.has_value());
    take_answer.round = *asked;
    for (int again = 0; again < 4; ++again) CHECK_FALSE(watch.take_answer(0, take_answer));
    take_answer.round = *asked - 1;
    CHECK_FALSE(watch.take_answer(1, take_answer));
  }
}

TEST_CASE("a process that has stood still counts from anew") {
  Ranks ranks(2, seconds(60));
  CHECK(ranks.run_until(kBegin + seconds(59)) == std::nullopt);
  ranks.watch.forget();
  ranks.since = kBegin + seconds(59);
  const auto ended = ranks.run_until(kBegin + seconds(300));
  REQUIRE(ended.has_value());
  CHECK(*ended - kBegin >= seconds(119));
}

TEST_CASE("in no order of events does a job end of which some rank was outside a wait within the limit") {
  constexpr auto kLimit = seconds(60);
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Ranks ranks(4, kLimit);
    TimePoint last_outside = kBegin - seconds(1);
    const auto ended = ranks.run_until(kBegin + seconds(1000), [&](TimePoint now) {
      for (int rank = 0; rank < 4; ++rank) {
        const bool outside = random() % 60 == 0;
        ranks[rank].wait = outside ? MainWait::kOutside : MainWait::kForever;
        const bool moved = random() % 60 == 0;
        if (moved) ++ranks[rank].changes;
        if (outside || moved) last_outside = now;
      }
    });
    if (ended) CHECK(*ended - last_outside >= kLimit);
  }
}

TEST_CASE("the error names every wait and whom it waits for, and blames no rank alone") {
  const std::vector<std::string> hosts{"h1", "h1", "h2", "h2"};
  const std::vector<net::RankWait> waits{{.what = "allreduce 'a'", .waiting = {0, 1}, .missing = {2, 3}},
                                         {.what = "barrier 'b'", .waiting = {2}, .missing = {0, 1, 3}}};
  const auto ranks = [&](const std::vector<int>& of) { return describe_ranks(of, hosts); };
  const ErrorInfo error = deadlock_error(waits, {"", "", "", "alltoall 'c'"}, hosts, seconds(600));
  CHECK(error.code == Errc::kTimeout);
  CHECK_FALSE(error.usable);
  CHECK(error.ranks == std::vector<int>{2, 3, 0, 1});
  CHECK(error.host.empty());
  CHECK(error.cause == "stalled");
  CHECK(error.message.find(ranks({0, 1}) + " wait in allreduce 'a' for " + ranks({2, 3})) != std::string::npos);
  CHECK(error.message.find(ranks({2}) + " waits in barrier 'b' for " + ranks({0, 1, 3})) != std::string::npos);
  CHECK(error.message.find("rank 3 (h2) waits in alltoall 'c'") != std::string::npos);
  CHECK(error.message.find("--deadlock-time") != std::string::npos);
}

}  // namespace
}  // namespace distrun::engine
