#include "launcher/agent/ending.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kEnd{};

Ending::View view(Duration at, bool ranks, bool children) {
  return {.started = true, .ranks_alive = ranks, .any_child = children, .now = kEnd + at};
}

TEST_CASE("a job in which nothing is left is done at once") {
  Ending ending(seconds(10));
  CHECK_FALSE(ending.next({.now = kEnd}).done);  // not started yet
  CHECK_FALSE(ending.next(view(seconds(1), true, true)).done);
  CHECK_FALSE(ending.deadline());
  CHECK(ending.next(view(seconds(2), false, false)).done);
}

TEST_CASE("what carries agents of other hosts is waited for, and killed only with everything else") {
  Ending ending(seconds(10));
  Ending::View carrying = view(seconds(1), false, true);
  carrying.carriers_only = true;
  const auto waiting = ending.next(carrying);
  CHECK_FALSE((waiting.done || waiting.left_behind || waiting.term_leftovers || waiting.kill_all));
  CHECK_FALSE(ending.deadline());
  ending.kill_now(carrying.now);
  CHECK(ending.next(carrying).kill_all);
  CHECK(ending.next(view(seconds(2), false, false)).done);
}

TEST_CASE("a helper that outlives the ranks for a moment does not end what carries agents of other hosts") {
  Ending ending(seconds(10));
  CHECK_FALSE(ending.next(view(seconds(1), false, true)).kill_all);
  Ending::View carrying = view(seconds(2), false, true);
  carrying.carriers_only = true;
  ending.next(carrying);
  CHECK_FALSE(ending.deadline());
  CHECK_FALSE(ending.stopping());
  carrying.now = kEnd + seconds(60);
  const auto later = ending.next(carrying);
  CHECK_FALSE((later.left_behind || later.term_leftovers || later.kill_all));
  // An order of the head still ends the rest.
  ending.stop({.kill_after = 1000}, carrying.now);
  carrying.now += seconds(1);
  CHECK(ending.next(carrying).kill_all);
}

TEST_CASE("what a successful job leaves behind gets the grace period, TERM, then KILL") {
  Ending ending(seconds(10));
  auto actions = ending.next(view(seconds(0), false, true));
  CHECK_FALSE((actions.left_behind || actions.term_leftovers || actions.kill_all));
  CHECK(ending.deadline() == kEnd + seconds(1));
  CHECK(ending.next(view(seconds(1), false, true)).left_behind);
  CHECK(ending.deadline() == kEnd + seconds(10));
  CHECK_FALSE(ending.next(view(seconds(5), false, true)).left_behind);
  CHECK(ending.next(view(seconds(10), false, true)).term_leftovers);
  CHECK(ending.deadline() == kEnd + seconds(12));
  CHECK_FALSE(ending.next(view(seconds(11), false, true)).term_leftovers);
  CHECK(ending.next(view(seconds(12), false, true)).kill_all);
  CHECK(ending.next(view(seconds(12), false, true)).kill_all);  // repeated until nothing is left
  CHECK(ending.next(view(seconds(17), false, true)).give_up);
  CHECK(ending.next(view(seconds(13), false, false)).done);
}

TEST_CASE("an order to stop: some at once, all later, everything in the end") {
  Ending ending(seconds(10));
  ending.stop({.term_now = {2, 3}, .term_after = 5000, .kill_after = 10000}, kEnd);
  auto actions = ending.next(view(seconds(0), true, true));
  CHECK(actions.term_ranks == std::set<int>{2, 3});
  CHECK_FALSE(actions.term_all_ranks);
  CHECK(ending.deadline() == kEnd + seconds(5));
  actions = ending.next(view(seconds(5), true, true));
  CHECK(actions.term_ranks.empty());
  CHECK(actions.term_all_ranks);
  CHECK_FALSE(ending.next(view(seconds(6), true, true)).term_all_ranks);
  CHECK(ending.next(view(seconds(10), true, true)).kill_all);
}

TEST_CASE("in a job that is being ended, what ranks leave behind gets TERM at once") {
  Ending ending(seconds(10));
  ending.stop({.term_after = 5000, .kill_after = 10000}, kEnd);
  ending.next(view(seconds(0), true, true));
  CHECK(ending.next(view(seconds(1), false, true)).term_leftovers);
  CHECK_FALSE(ending.next(view(seconds(2), false, true)).term_leftovers);
  CHECK(ending.next(view(seconds(10), false, true)).kill_all);
}

TEST_CASE("a second order can only hurry") {
  Ending ending(seconds(10));
  ending.stop({.kill_after = 10000}, kEnd);
  CHECK(ending.next(view(seconds(0), true, true)).term_all_ranks);
  ending.stop({.kill_after = 0}, kEnd + seconds(1));
  CHECK(ending.next(view(seconds(1), true, true)).kill_all);
  ending.stop({.kill_after = 10000}, kEnd + seconds(2));
  CHECK(ending.next(view(seconds(2), true, true)).kill_all);
}

TEST_CASE("Ctrl-C cuts the grace of what was left behind short") {
  Ending ending(seconds(10));
  ending.next(view(seconds(0), false, true));
  ending.stop({.kill_after = 10000}, kEnd + seconds(2));
  CHECK(ending.next(view(seconds(2), false, true)).term_leftovers);
  CHECK(ending.next(view(seconds(12), false, true)).kill_all);
}

TEST_CASE("without a head everything is killed at once, or never started") {
  Ending running(seconds(10));
  running.kill_now(kEnd);
  CHECK(running.next(view(seconds(0), true, true)).kill_all);
  Ending waiting(seconds(10));
  waiting.kill_now(kEnd);
  CHECK(waiting.next({.now = kEnd}).done);
}

}  // namespace
}  // namespace distrun::launcher
