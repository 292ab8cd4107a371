#include "launcher/report/lines/line_tags.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

TEST_CASE("a tag names the ranks, and their host where that is one") {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  const LineTags by_rank({}, hosts);
  CHECK(by_rank.tag({2}, false) == "[2] ");
  CHECK(by_rank.tag({0, 1, 3}, false) == "[0-1,3] ");
  const LineTags by_host({.tag = TagStyle::kHost}, hosts);
  CHECK(by_host.tag({2, 3}, false) == "[2-3@b] ");
  CHECK(by_host.tag({1, 2}, false) == "[1-2] ");
  CHECK(LineTags({.tag = TagStyle::kNone}, hosts).tag({2}, true).empty());
}

TEST_CASE("neighbours have different colours, and what several say is bold") {
  const LineTags tags({}, {"a", "a"});
  CHECK(tags.tag({0}, true) == "\x1b[36m[0]\x1b[0m ");
  CHECK(tags.tag({1}, true) == "\x1b[33m[1]\x1b[0m ");
  CHECK(tags.tag({0, 1}, true) == "\x1b[1m[0-1]\x1b[0m ");
}

TEST_CASE("of many ranks that are not neighbours the tag has the first ones and their number") {
  std::vector<int> odd;
  for (int rank = 1; rank < 200; rank += 2) odd.push_back(rank);
  const std::string tag = LineTags({}, std::vector<std::string>(200, "a")).tag(odd, false);
  CHECK(tag.starts_with("[1,3,5,"));
  CHECK(tag.ends_with(",... 100 ranks] "));
  CHECK(tag.size() < 60);
}

TEST_CASE("a stamp has the date, the time and milliseconds, if it was asked for") {
  CHECK(LineTags({}, {}).stamp(Duration::zero()).empty());
  const std::string stamp = LineTags({.timestamp = true}, {}).stamp(std::chrono::hours(1));
  REQUIRE(stamp.size() == std::string("2026-01-31 12:00:00.123 ").size());
  CHECK(stamp[10] == ' ');
  CHECK(stamp[19] == '.');
}

}  // namespace
}  // namespace distrun::launcher
