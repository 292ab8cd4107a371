#include "launcher/report/lines/last_lines.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::seconds;
using Lines = std::vector<std::string>;

constexpr TimePoint kFirstLast{std::chrono::hours(1)};

TEST_CASE("the last lines of both streams come in the order in which they were written") {
  LastLines last(2);
  last.add(1, 0, {.text = "out 1\n"}, kFirstLast);
  last.add(1, 1, {.text = "err 1\n"}, kFirstLast + seconds(1));
  last.add(1, 0, {.text = "out 2\n"}, kFirstLast + seconds(2));
  CHECK(last.of(1) == Lines{"out 1", "err 1", "out 2"});
  CHECK(last.of(0).empty());
  CHECK(last.most_informative(0).empty());
  CHECK(last.most_informative(1) == "err 1");
}

TEST_CASE("what standard output kept until the exit does not push out the error before it") {
  LastLines last(1);
  last.add(0, 1, {.text = "the reason\n"}, kFirstLast);
  for (int i = 0; i < 30; ++i) last.add(0, 0, {.text = std::to_string(i) + "\n"}, kFirstLast + seconds(1));
  const Lines lines = last.of(0);
  REQUIRE(lines.size() == 20);
  CHECK(lines.front() == "the reason");
  CHECK(lines.back() == "29");
  CHECK(last.most_informative(0) == "the reason");
  // An old error does not explain the end.
  last.add(0, 0, {.text = "later\n"}, kFirstLast + seconds(7));
  CHECK(last.of(0).front() == "11");
  CHECK(last.most_informative(0) == "later");
}

TEST_CASE("a progress bar that is drawn a last time does not hide the reason before it") {
  LastLines last(1);
  last.add(0, 1, {.text = "ValueError: bad\n"}, kFirstLast);
  last.add(0, 1, {.text = " 20%\n", .redrawn = true}, kFirstLast + seconds(1));
  CHECK(last.of(0).back() == " 20%");
  CHECK(last.most_informative(0) == "ValueError: bad");
  last.add(0, 1, {.text = " 30%\n", .redrawn = true}, kFirstLast + seconds(9));
  CHECK(last.most_informative(0) == " 30%");
}

TEST_CASE("the exception of a rank is found in its standard error, also if a line comes in pieces") {
  LastLines last(2);
  const auto add = [&](int stream, const std::string& text) { last.add(1, stream, {.text = text}, kFirstLast); };
  add(1, "Traceback (most recent call last):\n");
  add(1, "  File \"a.py\", line 3, in f\n");
  add(0, "an output between\n");
  last.add(1, 1, {.text = "Value", .ends = false}, kFirstLast);
  last.add(1, 1, {.text = "Error: bad\n", .begins = false}, kFirstLast);
  REQUIRE(last.exception(1));
  CHECK(last.exception(1)->text == "ValueError: bad");
  CHECK_FALSE(last.exception(0));
}

TEST_CASE("an exception of several lines tells more than its last line, while standard error is recent") {
  LastLines last(1);
  const auto add = [&](const std::string& text) { last.add(0, 1, {.text = text + "\n"}, kFirstLast); };
  add("Traceback (most recent call last):");
  add("  File \"a.py\", line 3, in f");
  add("errors_impl.UnknownError: Graph execution error:");
  add("rank 1 on h was lost");
  add("\t [[{{node Add}}]]");
  CHECK(last.most_informative(0) == "UnknownError: rank 1 on h was lost");
  last.add(0, 0, {.text = "later\n"}, kFirstLast + seconds(7));
  CHECK(last.most_informative(0) == "later");
}

TEST_CASE("a long line is cut between characters") {
  LastLines last(1);
  last.add(0, 0, {.text = std::string(399, 'x') + "\u00e4\n"}, kFirstLast);
  CHECK(last.of(0).front() == std::string(399, 'x') + " ...");
}

TEST_CASE("a line that comes in parts is quoted whole") {
  LastLines last(1);
  last.add(0, 0, {.text = "loading", .ends = false}, kFirstLast);
  CHECK(last.of(0) == Lines{"loading"});
  last.add(0, 0, {.text = " ... failed\n", .begins = false}, kFirstLast + seconds(1));
  CHECK(last.of(0) == Lines{"loading ... failed"});
}

TEST_CASE("a cut line ends its colours, and cuts no colour") {
  LastLines last(1);
  last.add(0, 0, {.text = "\x1b[31m" + std::string(392, 'x') + "\x1b[32mgreen\x1b[0m\n"}, kFirstLast);
  CHECK(last.of(0).front() == "\x1b[31m" + std::string(392, 'x') + "\x1b[0m ...");
}

}  // namespace
}  // namespace distrun::launcher
