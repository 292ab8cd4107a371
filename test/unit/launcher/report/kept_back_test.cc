#include "launcher/report/errors/kept_back.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

TEST_CASE("after the first failure the other ranks' errors are kept until they are asked for") {
  KeptBack kept(3);
  CHECK(kept.pass(2, {.text = "before\n"})->text == "before\n");
  kept.start_all_but(1);
  CHECK(kept.silences(2));
  CHECK_FALSE(kept.silences(1));
  CHECK(kept.pass(1, {.text = "first\n"})->text == "first\n");
  CHECK_FALSE(kept.pass(2, {.text = "a\n"}));
  CHECK_FALSE(kept.pass(2, {.text = "b\n"}));
  const auto pieces = kept.release(2);
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[1].text == "b\n");
  CHECK(kept.release(2).empty());
  CHECK(kept.pass(2, {.text = "c\n"}));
}

TEST_CASE("a long line that began to be shown is shown to its end") {
  KeptBack kept(2);
  CHECK(kept.pass(0, {.text = "begin", .ends = false}));
  kept.start_all_but(1);
  CHECK(kept.pass(0, {.text = "end\n", .begins = false}));
  CHECK_FALSE(kept.pass(0, {.text = "next\n"}));
}

TEST_CASE("the oldest pieces go when there are too many, and the last one stays") {
  KeptBack kept(2);
  kept.start_all_but(1);
  for (int i = 0; i < 3; ++i) kept.pass(0, {.text = std::string(KeptBack::kMostBytes / 2, static_cast<char>('a' + i))});
  CHECK(kept.release(0).front().text.front() == 'b');
  kept.start_all_but(1);
  kept.pass(0, {.text = std::string(KeptBack::kMostBytes * 2, 'x')});
  CHECK(kept.release(0).size() == 1);
}

}  // namespace
}  // namespace distrun::launcher
