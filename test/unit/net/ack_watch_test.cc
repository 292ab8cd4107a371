#include "runtime/net/bytes/ack_watch.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = AckWatch::State;

const TimePoint kStart = TimePoint{} + std::chrono::hours(1);
constexpr Duration kLimit = seconds(5);

// Calls look() once a second with the same facts. From second `deaf` on, nothing is heard. Returns the second when
// the connection ended, or -1 if it did not end within an hour.
int ends_after(AckFacts facts, Duration limit = kLimit) {
  AckWatch watch;
  for (int second = 0; second < 3600; ++second) {
    facts.since_last_message = seconds(second) + milliseconds(10);
    if (watch.look(facts, kStart + seconds(second), limit, SmallPackets::kNoAnswer) == State::kEnded) return second;
  }
  return -1;
}

TEST_CASE("a connection on which nothing is under way need not be looked at") {
  AckWatch watch;
  CHECK(watch.look({.since_last_message = std::chrono::hours(3)}, kStart, kLimit, SmallPackets::kNoAnswer) ==
        State::kQuiet);
  CHECK(ends_after({}) == -1);
}

TEST_CASE("bytes that are not acknowledged for the limit are the network's end") {
  CHECK(ends_after({.in_flight = 100}) == 5);
  CHECK(ends_after({.in_flight = 100}, seconds(30)) == 30);
  AckWatch watch;
  CHECK(watch.look({.in_flight = 100}, kStart, kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  CHECK(watch.look({.in_flight = 100, .since_last_message = seconds(2)}, kStart + seconds(2), kLimit,
                   SmallPackets::kNoAnswer) == State::kWaiting);
  CHECK(watch.look({.in_flight = 100, .since_last_message = seconds(4)}, kStart + seconds(4), kLimit,
                   SmallPackets::kNoAnswer) == State::kDoubtful);
  CHECK(watch.look({.in_flight = 100, .since_last_message = seconds(5)}, kStart + seconds(5), kLimit,
                   SmallPackets::kNoAnswer) == State::kEnded);
  CHECK(watch.end() == LinkEnd::kSilent);
}

TEST_CASE("what was sent after hours of silence has the whole limit") {
  AckWatch watch;
  AckFacts facts{.acknowledged = 7, .since_last_message = std::chrono::hours(2)};
  CHECK(watch.look(facts, kStart, kLimit, SmallPackets::kNoAnswer) == State::kQuiet);
  facts.in_flight = 10;
  CHECK(watch.look(facts, kStart + std::chrono::hours(1), kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  CHECK(watch.look(facts, kStart + std::chrono::hours(1) + seconds(1), kLimit, SmallPackets::kNoAnswer) ==
        State::kWaiting);
}

TEST_CASE("a slow network that acknowledges something goes on") {
  AckWatch watch;
  for (int second = 0; second < 100; ++second) {
    const AckFacts facts{.acknowledged = static_cast<std::uint64_t>(second / 4), .in_flight = 9000, .queued = 1 << 20};
    REQUIRE(watch.look(facts, kStart + seconds(second), kLimit, SmallPackets::kNoAnswer) != State::kEnded);
  }
}

TEST_CASE("other acknowledgements do not save a packet that is lost again and again") {
  AckWatch watch;
  int second = 0;
  while (watch.look({.acknowledged = 7, .in_flight = 9000}, kStart + seconds(second), kLimit, SmallPackets::kAllPass) !=
         State::kEnded) {
    REQUIRE(++second < 100);
  }
  // The peer can be reached, so lost packets get time to be sent again.
  CHECK(second == 13);
  CHECK(watch.end() == LinkEnd::kLargeSilent);
}

TEST_CASE("large packets that are lost while small ones are lost too are no matter of the MTU") {
  AckWatch watch;
  int second = 0;
  while (watch.look({.in_flight = 9000}, kStart + seconds(second), kLimit, SmallPackets::kSomeLost) != State::kEnded) {
    REQUIRE(++second < 100);
  }
  CHECK(second == 13);
  CHECK(watch.end() == LinkEnd::kSilent);
}

TEST_CASE("small packets that are lost while others pass are no matter of the MTU") {
  AckWatch watch;
  int second = 0;
  while (watch.look({.in_flight = 100}, kStart + seconds(second), seconds(30), SmallPackets::kAllPass) != State::kEnded)
    ++second;
  CHECK(second == 30);
  CHECK(watch.end() == LinkEnd::kSilent);
}

TEST_CASE("a reader that is stopped answers the probes of its full window, for ever") {
  AckWatch watch;
  // The kernel's probes become rare, one in two minutes. The peer answers each at once.
  for (int second = 0; second < 7200; ++second) {
    const AckFacts facts{.acknowledged = 1000,
                         .queued = 1 << 20,
                         .window_closed = true,
                         .asked = second % 120 == 0,
                         .since_last_message = seconds(second % 120)};
    REQUIRE(watch.look(facts, kStart + seconds(second), kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  }
}

TEST_CASE("a full window whose probes are not answered is the network's end") {
  CHECK(ends_after({.queued = 1 << 20, .window_closed = true, .asked = true}) == 5);
  AckWatch watch;
  // Two minutes may pass before the kernel sends a probe.
  for (int second = 0; second < 120; ++second) {
    const AckFacts facts{.queued = 1, .window_closed = true, .since_last_message = seconds(second)};
    REQUIRE(watch.look(facts, kStart + seconds(second), kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  }
  AckFacts facts{.queued = 1, .window_closed = true, .asked = true, .since_last_message = seconds(120)};
  CHECK(watch.look(facts, kStart + seconds(120), kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  facts.since_last_message = seconds(126);
  CHECK(watch.look(facts, kStart + seconds(126), kLimit, SmallPackets::kNoAnswer) !=
        State::kEnded);  // this process itself was stopped
  for (int second = 127; second < 130; ++second) {
    facts.since_last_message = seconds(second);
    CHECK(watch.look(facts, kStart + seconds(second), kLimit, SmallPackets::kNoAnswer) != State::kEnded);
  }
  facts.since_last_message = seconds(131);
  CHECK(watch.look(facts, kStart + seconds(131), kLimit, SmallPackets::kNoAnswer) == State::kEnded);
}

TEST_CASE("a window that closes over bytes in flight is a slow reader") {
  AckWatch watch;
  for (int second = 0; second < 600; ++second) {
    const AckFacts facts{
        .acknowledged = 5, .in_flight = 500, .window_closed = true, .since_last_message = seconds(second % 100)};
    REQUIRE(watch.look(facts, kStart + seconds(second), kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  }
}

TEST_CASE("a time for which this process was stopped does not count") {
  AckWatch watch;
  CHECK(watch.look({.in_flight = 100}, kStart, kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  CHECK(watch.look({.in_flight = 100}, kStart + seconds(60), kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  CHECK(watch.look({.in_flight = 100}, kStart + seconds(62), kLimit, SmallPackets::kNoAnswer) == State::kWaiting);
  CHECK(watch.look({.in_flight = 100}, kStart + seconds(64), kLimit, SmallPackets::kNoAnswer) == State::kDoubtful);
  CHECK(watch.look({.in_flight = 100}, kStart + seconds(65), kLimit, SmallPackets::kNoAnswer) == State::kEnded);
}

}  // namespace
}  // namespace distrun::net
