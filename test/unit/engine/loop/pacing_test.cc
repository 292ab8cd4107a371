#include "runtime/engine/pacing.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace distrun::engine {
namespace {

using Kind = Pacing::Pause::Kind;

class CountingWaitSet final : public net::WaitSet {
 public:
  int wakes = 0;
  Status add(int, std::uint32_t, Callback) override { return {}; }
  Status modify(int, std::uint32_t) override { return {}; }
  void remove(int) override {}
  void add_link(int, net::LinkWatch) override {}
  void remove_link(int) override {}
  void add_sleepable(net::Sleepable*) override {}
  void remove_sleepable(net::Sleepable*) override {}
  Result<int> poll(TimePoint, const LookAgain&) override { return 0; }
  void wake() override { ++wakes; }
};

// How many pauses of `kind` come before it is time to sleep.
int pauses_before_sleep(Pacing& pacing, const Pacing::Work& work, Kind kind) {
  int pauses = 0;
  for (; pacing.pause(work, TimePoint::max()).kind == kind; ++pauses) {
  }
  return pauses;
}

TEST_CASE("the engine's thread sleeps at once where nothing is worth a spin") {
  CountingWaitSet wait_set;
  Pacing pacing(wait_set, true);
  CHECK(pacing.pause({}, TimePoint::max()).kind == Kind::kSleep);
  CHECK(pacing.pause({.polls_memory = true}, TimePoint::max()).kind == Kind::kSpin);
}

TEST_CASE("a caller spins for its budget, which a sleep halves and a find doubles") {
  CountingWaitSet wait_set;
  Pacing pacing(wait_set, true);
  const Pacing::Work work{.caller = true};
  const auto spin = [&] {
    pacing.restart();
    const TimePoint start = Clock::now();
    pauses_before_sleep(pacing, work, Kind::kSpin);
    return Clock::now() - start;
  };
  const Pacing::Pause pause = pacing.pause(work, TimePoint::max());
  CHECK(pause.kind == Kind::kSpin);
  CHECK(pause.looks == Pacing::kLooksPerCheck);
  CHECK(spin() >= Pacing::kMostSpin);
  for (int i = 0; i < 10; ++i) spin();
  Duration shortest = Pacing::kMostSpin;
  for (int i = 0; i < 20; ++i) shortest = std::min(shortest, spin());
  CHECK(shortest < Pacing::kMostSpin);
  for (int i = 0; i < 10; ++i) pacing.found(pause, work);
  CHECK(spin() >= Pacing::kMostSpin);
}

TEST_CASE("where ranks outnumber cores a caller gives up the core some times, then sleeps") {
  CountingWaitSet wait_set;
  Pacing pacing(wait_set, false);
  const Pacing::Work work{.caller = true};
  CHECK(pauses_before_sleep(pacing, work, Kind::kTurn) >= Pacing::kLeastYields);
  CHECK(pacing.pause(work, TimePoint::min()).kind == Kind::kSleep);  // its time has passed
}

TEST_CASE("a library's own threads get the core, and one that must be asked is asked") {
  CountingWaitSet wait_set;
  Pacing spins(wait_set, true);
  CHECK(spins.pause({.caller = true, .moves_elsewhere = true}, TimePoint::max()).kind == Kind::kTurn);
  CHECK(spins.pause({.must_be_asked = true}, TimePoint::max()).kind == Kind::kAsk);
  CHECK(spins.pause({.must_be_asked = true}, TimePoint::max()).looks == Pacing::kLooksPerCheck);
  Pacing yields(wait_set, false);
  CHECK(yields.pause({.must_be_asked = true}, TimePoint::max()).looks == Pacing::kLeastYields);
}

TEST_CASE("only a sleeper is woken, and once") {
  CountingWaitSet wait_set;
  Pacing pacing(wait_set, true);
  pacing.wake();
  CHECK(wait_set.wakes == 0);
  pacing.fall_asleep();
  pacing.wake();
  pacing.wake();
  CHECK(wait_set.wakes == 1);
  pacing.fall_asleep();
  pacing.wake_up();
  pacing.wake();
  CHECK(wait_set.wakes == 1);
}

TEST_CASE("turns that always move still read the clock and look at everything") {
  CountingWaitSet wait_set;
  Pacing pacing(wait_set, true);
  int clock = 0;
  int timers = 0;
  for (int turn = 0; turn < 512; ++turn) {
    const Pacing::Due due = pacing.count_turn();
    clock += due.clock ? 1 : 0;
    timers += due.timers ? 1 : 0;
  }
  CHECK(clock == 32);
  CHECK(timers == 2);
}

}  // namespace
}  // namespace distrun::engine
