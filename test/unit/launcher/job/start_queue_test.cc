#include "launcher/job/start/start_queue.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Hosts = std::vector<std::size_t>;

TimePoint at(int ms) { return TimePoint() + milliseconds(ms); }
double half() { return 0.5; }

TEST_CASE("agents start so many at a time, and the next when one has answered") {
  StartQueue queue(4, {.at_a_time = 2}, half);
  CHECK(queue.due(at(0)) == Hosts{0, 1});
  CHECK(queue.due(at(0)).empty());
  queue.answered(0);
  CHECK(queue.due(at(1)) == Hosts{2});
  CHECK_FALSE(queue.failed(1, false, at(2)));
  CHECK(queue.due(at(2)) == Hosts{3});
  queue.answered(2);
  CHECK(queue.pending());
  queue.answered(3);
  CHECK_FALSE(queue.pending());
  CHECK(queue.deadline() == TimePoint::max());
}

TEST_CASE("what may pass is tried again, later each time and not at the same moment") {
  StartQueue queue(1, {.attempts = 3, .pause = seconds(1)}, half);
  CHECK(queue.due(at(0)) == Hosts{0});
  CHECK(queue.failed(0, true, at(100)));
  CHECK(queue.deadline() == at(1600));
  CHECK(queue.due(at(1599)).empty());
  CHECK(queue.due(at(1600)) == Hosts{0});
  CHECK(queue.failed(0, true, at(1600)));
  CHECK(queue.due(at(4100)) == Hosts{0});
  CHECK_FALSE(queue.failed(0, true, at(4200)));
  CHECK_FALSE(queue.pending());
}

TEST_CASE("with a time that the user gave, attempts go on until it is over") {
  StartQueue queue(1, {.attempts = 3, .answer = seconds(60), .keep_trying = true, .pause = seconds(1)}, half);
  TimePoint now = at(0);
  int attempts = 0;
  Duration longest = Duration::zero();
  for (;;) {
    REQUIRE(queue.due(now) == Hosts{0});
    ++attempts;
    if (!queue.failed(0, true, now)) break;
    longest = std::max<Duration>(longest, queue.deadline() - now);
    now = queue.deadline();
  }
  CHECK(attempts == queue.attempts(0));
  CHECK(attempts > 6);
  CHECK(longest == milliseconds(8500));
  CHECK(now < at(60'000));
  CHECK(now > at(50'000));
  CHECK_FALSE(queue.pending());
}

TEST_CASE("the time that the user gave is that of all attempts together") {
  StartQueue queue(1, {.answer = seconds(20), .keep_trying = true, .pause = seconds(1)}, half);
  CHECK(queue.due(at(0)) == Hosts{0});
  CHECK(queue.failed(0, true, at(10'000)));
  CHECK(queue.due(at(11'500)) == Hosts{0});
  CHECK(queue.deadline() == at(20'000));
  CHECK(queue.overdue(at(20'000)) == Hosts{0});
}

TEST_CASE("what will not pass is not tried again, however long the user waits") {
  StartQueue queue(1, {.answer = seconds(600), .keep_trying = true}, half);
  CHECK(queue.due(at(0)) == Hosts{0});
  CHECK_FALSE(queue.failed(0, false, at(1)));
  CHECK_FALSE(queue.pending());
}

TEST_CASE("an agent that never answers is given up once") {
  StartQueue queue(2, {.answer = seconds(5)}, half);
  CHECK(queue.due(at(0)).size() == 2);
  queue.answered(0);
  CHECK(queue.deadline() == at(5000));
  CHECK(queue.overdue(at(4999)).empty());
  CHECK(queue.overdue(at(5000)) == Hosts{1});
  CHECK(queue.overdue(at(5001)).empty());
  CHECK_FALSE(queue.failed(1, true, at(5002)));
  CHECK_FALSE(queue.pending());
}

TEST_CASE("a host that another one starts is not due, and counts as running once it has come") {
  StartQueue queue(3, {.at_a_time = 1, .by_another = seconds(20)}, half);
  queue.hand_over(1);
  queue.hand_over(2);
  CHECK(queue.due(at(0)) == Hosts{0});
  CHECK(queue.deadline() == at(60'000));
  queue.ordered(1, at(100));
  queue.ordered(2, at(100));
  CHECK(queue.deadline() == at(20'100));
  queue.arrived(1, at(200));
  CHECK_FALSE(queue.handed_over(1));
  CHECK_FALSE(queue.take_back(1));
  queue.answered(0);
  queue.answered(1);
  CHECK(queue.pending());
  CHECK(queue.late(at(20'099)).empty());
  CHECK(queue.late(at(20'100)) == Hosts{2});
  CHECK(queue.take_back(2));
  CHECK(queue.late(at(20'100)).empty());
  CHECK(queue.due(at(20'100)) == Hosts{2});
  queue.answered(2);
  CHECK_FALSE(queue.pending());
}

TEST_CASE("a host that another one could not start is due again, with all its attempts") {
  StartQueue queue(1, {.attempts = 2}, half);
  queue.hand_over(0);
  CHECK(queue.take_back(0));
  CHECK_FALSE(queue.take_back(0));
  queue.arrived(0, at(0));  // too late
  CHECK(queue.due(at(0)) == Hosts{0});
  CHECK(queue.failed(0, true, at(1)));
}

}  // namespace
}  // namespace distrun::launcher
