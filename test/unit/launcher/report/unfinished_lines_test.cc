#include "launcher/report/lines/unfinished_lines.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using Streams = std::vector<std::size_t>;

constexpr TimePoint kFirstUnfinished{std::chrono::hours(1)};

TEST_CASE("a line without an end is due once after its delay") {
  UnfinishedLines lines(4);
  CHECK_FALSE(lines.deadline());
  lines.follow(3, true, milliseconds(500), kFirstUnfinished);
  lines.follow(3, true, milliseconds(500), kFirstUnfinished + milliseconds(400));  // the line goes on
  CHECK(lines.deadline() == kFirstUnfinished + milliseconds(500));
  CHECK(lines.due(kFirstUnfinished + milliseconds(499)).empty());
  CHECK(lines.due(kFirstUnfinished + milliseconds(500)) == Streams{3});
  CHECK(lines.due(kFirstUnfinished + milliseconds(900)).empty());
  CHECK_FALSE(lines.deadline());
}

TEST_CASE("a line that has ended is not due, and the next one has been seen to no part") {
  UnfinishedLines lines(2);
  lines.follow(0, true, milliseconds(500), kFirstUnfinished);
  lines.follow(1, true, milliseconds(300), kFirstUnfinished);
  lines.shown(0) = 7;
  lines.follow(0, false, milliseconds(500), kFirstUnfinished);
  CHECK(lines.shown(0) == 0);
  CHECK(lines.due(kFirstUnfinished + milliseconds(600)) == Streams{1});
}

TEST_CASE("a line can be looked at again, and keeps what was shown of it") {
  UnfinishedLines lines(1);
  lines.follow(0, true, milliseconds(1), kFirstUnfinished);
  REQUIRE(lines.due(kFirstUnfinished + milliseconds(1)) == Streams{0});
  lines.shown(0) = 3;
  lines.again(0, kFirstUnfinished + milliseconds(5));
  CHECK(lines.deadline() == kFirstUnfinished + milliseconds(5));
  CHECK(lines.shown(0) == 3);
  lines.follow(0, false, milliseconds(1), kFirstUnfinished);
  CHECK(lines.due(kFirstUnfinished + milliseconds(9)).empty());
}

}  // namespace
}  // namespace distrun::launcher
