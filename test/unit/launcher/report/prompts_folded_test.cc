// Tracebacks of ranks that asked at a prompt and had no input.
#include "launcher/report/errors/prompts_folded.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace distrun::launcher {
namespace {

constexpr TimePoint kNow{std::chrono::hours(1)};

class Screen {
 public:
  void write(int rank, const std::vector<std::string>& lines, TimePoint now = kNow) {
    for (const std::string& line : lines) add(prompts.pass(rank, {.text = line + "\n"}, now));
  }
  void add(const std::deque<Piece>& pieces) {
    for (const Piece& piece : pieces) text += piece.text;
  }
  PromptsFolded prompts{2};
  std::string text;
};

const std::vector<std::string> kQuit = {"Traceback (most recent call last):", "  File \"a.py\", line 1, in <module>",
                                        "    breakpoint()", "bdb.BdbQuit"};

TEST_CASE("the traceback of a prompt is not shown if the rank failed with it") {
  for (const std::string& tag : {std::string(), std::string("[rank1]: ")}) {
    for (const char* last : {"bdb.BdbQuit", "EOFError: EOF when reading a line"}) {
      Screen screen;
      screen.write(1, {"loading"});
      screen.write(1, {tag + kQuit[0], tag + kQuit[1], tag + kQuit[2], tag + last});
      screen.prompts.failed(1);
      screen.add(screen.prompts.finish(1));
      CHECK(screen.text == "loading\n");
    }
  }
}

TEST_CASE("every other traceback is shown when it is whole") {
  Screen screen;
  screen.write(1, {kQuit[0], kQuit[1], kQuit[2]});
  CHECK(screen.text.empty());
  screen.write(1, {"ValueError: bad"});
  CHECK(screen.text.ends_with("breakpoint()\nValueError: bad\n"));
  screen.write(0, {"EOFError: EOF when reading a line"});  // no traceback
  CHECK(screen.text.ends_with("EOFError: EOF when reading a line\n"));
}

TEST_CASE("the traceback of a prompt is shown if the program went on, ended well or raised something else") {
  Screen screen;
  screen.write(1, kQuit);
  SECTION("it wrote more") {
    screen.write(1, {"next"});
    CHECK(screen.text.ends_with("bdb.BdbQuit\nnext\n"));
  }
  SECTION("it ended well") {
    screen.add(screen.prompts.finish(1));
    CHECK(screen.text.ends_with("bdb.BdbQuit\n"));
  }
  SECTION("another exception followed from it") {
    screen.write(1, {"", "During handling of the above exception, another exception occurred:", "", kQuit[0], kQuit[1],
                     "KeyError: 'x'"});
    CHECK(screen.text.find("bdb.BdbQuit\n\nDuring") != std::string::npos);
    CHECK(screen.text.ends_with("KeyError: 'x'\n"));
  }
  SECTION("it writes nothing for a while") {
    REQUIRE(screen.prompts.deadline() == kNow + PromptsFolded::kWait);
    CHECK_FALSE(screen.prompts.take_due(kNow + PromptsFolded::kWait / 2));
    const auto due = screen.prompts.take_due(kNow + PromptsFolded::kWait);
    REQUIRE(due);
    CHECK(due->first == 1);
    CHECK(due->second.size() == 4);
    CHECK_FALSE(screen.prompts.deadline());
  }
}

TEST_CASE("a long traceback is not kept back to its end") {
  Screen screen;
  screen.write(1, {kQuit[0], "  " + std::string(PromptsFolded::kMostBytes, 'x')});
  CHECK(screen.text.size() > PromptsFolded::kMostBytes);
}

}  // namespace
}  // namespace distrun::launcher
