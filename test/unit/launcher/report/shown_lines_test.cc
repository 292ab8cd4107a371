#include "launcher/report/lines/shown_lines.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

TEST_CASE("the user has just seen the lines of a rank if all of them are among the last ones, in their order") {
  ShownLines shown;
  shown.add({1}, "a\n", true);
  shown.add({0}, "x\n", true);
  shown.add({0, 1}, "b\n", true);
  CHECK(shown.show(1, {"a", "b"}));
  CHECK(shown.show(0, {"x", "b"}));
  CHECK_FALSE(shown.show(1, {"b", "a"}));
  CHECK_FALSE(shown.show(1, {"a", "x"}));
  CHECK_FALSE(shown.show(2, {"a"}));
  for (std::size_t i = 0; i + 2 < ShownLines::kVisible; ++i) shown.add({2}, "more\n", true);
  CHECK_FALSE(shown.show(1, {"a", "b"}));
  CHECK(shown.show(1, {"b"}));
}

TEST_CASE("a line that came in parts is one line, unless another has broken it") {
  ShownLines shown;
  shown.add({1}, "part ", true);
  shown.add({1}, "and end\n", false);
  CHECK(shown.show(1, {"part and end"}));
  shown.add({1}, "part ", true);
  shown.add({0}, "x\n", true);
  shown.add({1}, "end\n", false);
  CHECK_FALSE(shown.show(1, {"part end"}));
}

}  // namespace
}  // namespace distrun::launcher
