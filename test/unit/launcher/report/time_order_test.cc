#include "launcher/report/lines/time_order.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kFirstLine{hours(1)};

std::uint64_t stamp(Duration since_boot) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since_boot).count());
}

std::string text_of(const std::vector<TimeOrder::Line>& lines) {
  std::string out;
  for (const auto& line : lines) out += line.piece.text;
  return out;
}

TEST_CASE("another host's moments are known but for the quickest message") {
  HostClock clock;
  // That host has been up for one day longer than this one. Its messages take 1 to 50 ms.
  const auto there = [](Duration at) { return stamp(hours(24) + at); };
  clock.moment(there(milliseconds(0)), kFirstLine + milliseconds(50));
  CHECK(clock.moment(there(milliseconds(100)), kFirstLine + milliseconds(101)) == kFirstLine + milliseconds(101));
  CHECK(clock.moment(there(milliseconds(200)), kFirstLine + milliseconds(250)) == kFirstLine + milliseconds(201));
  // Time never goes back, whatever the stamp says.
  CHECK(clock.moment(there(milliseconds(150)), kFirstLine + milliseconds(251)) == kFirstLine + milliseconds(201));
  CHECK(clock.moment(0, kFirstLine + milliseconds(252)) == kFirstLine + milliseconds(201));
  CHECK(clock.moment(~std::uint64_t{0}, kFirstLine + milliseconds(300)) >= kFirstLine);
}

TEST_CASE("a clock that runs slow is followed") {
  HostClock clock;
  TimePoint last;
  for (int i = 0; i <= 36000; ++i) {
    const Duration here = seconds(i);
    const Duration there = here - here / 10000;  // a slow clock, which loses 3.6 s in these ten hours
    last = clock.moment(stamp(there), kFirstLine + here);
  }
  CHECK(kFirstLine + hours(10) - last < milliseconds(10));
}

TEST_CASE("after a long silence the clock is learnt anew") {
  HostClock clock;
  clock.moment(stamp(seconds(0)), kFirstLine);
  const Duration day = hours(24);
  const Duration there = day - day / 20000;  // slower by 50 parts in a million: 4.3 s
  CHECK(clock.moment(stamp(there), kFirstLine + day) == kFirstLine + day);
}

TEST_CASE("lines of two hosts come in the order in which they were written") {
  TimeOrder order(milliseconds(300));
  order.add(kFirstLine + milliseconds(20), {.stream = 0, .piece = {.text = "second\n"}});
  order.add(kFirstLine + milliseconds(20), {.stream = 0, .piece = {.text = "third\n"}});
  order.add(kFirstLine + milliseconds(10), {.stream = 2, .piece = {.text = "first\n"}});
  CHECK(order.deadline() == kFirstLine + milliseconds(310));
  CHECK(order.take(kFirstLine + milliseconds(309)).empty());
  CHECK(text_of(order.take(kFirstLine + milliseconds(310))) == "first\n");
  CHECK(text_of(order.take(kFirstLine + milliseconds(320))) == "second\nthird\n");
  CHECK_FALSE(order.deadline());
}

TEST_CASE("one host's lines do not wait, and a flood is not held") {
  TimeOrder one(Duration::zero());
  one.add(kFirstLine, {.piece = {.text = "x\n"}});
  CHECK(text_of(one.take(kFirstLine)) == "x\n");
  TimeOrder two(milliseconds(300));
  std::size_t written = 0;
  for (int i = 0; i < 10000; ++i) {
    two.add(kFirstLine, {.piece = {.text = std::string(1000, 'x')}});
    written += two.take(kFirstLine).size();
  }
  CHECK(written > 8900);
  CHECK(written + two.take_all().size() == 10000);
}

}  // namespace
}  // namespace distrun::launcher
