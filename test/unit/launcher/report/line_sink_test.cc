#include "launcher/report/lines/line_sink.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

constexpr TimePoint kSinkNow{};

TEST_CASE("streams do not mix within a line") {
  LineSink sink(false);
  sink.add(0, "[0] ", {.text = "a\n"}, kSinkNow);
  sink.add(1, "[1] ", {.text = "long ", .begins = true, .ends = false}, kSinkNow);
  sink.add(0, "[0] ", {.text = "b\n"}, kSinkNow);
  CHECK(sink.holds(0));
  sink.add(1, "[1] ", {.text = "line ", .begins = false, .ends = false}, kSinkNow);
  sink.add(2, "[2] ", {.text = "c\n"}, kSinkNow);
  sink.add(1, "[1] ", {.text = "end\n", .begins = false, .ends = true}, kSinkNow);
  CHECK(sink.text() == "[0] a\n[1] long line end\n[0] b\n[2] c\n");
  CHECK_FALSE(sink.holds(0));
}

TEST_CASE("two long lines come one after the other") {
  LineSink sink(false);
  sink.add(0, "[0] ", {.text = "x", .ends = false}, kSinkNow);
  sink.add(1, "[1] ", {.text = "y", .ends = false}, kSinkNow);
  sink.add(2, "[2] ", {.text = "z\n"}, kSinkNow);
  sink.add(1, "[1] ", {.text = "yy\n", .begins = false}, kSinkNow);
  sink.add(0, "[0] ", {.text = "xx\n", .begins = false}, kSinkNow);
  CHECK(sink.text() == "[0] xxx\n[1] yyy\n[2] z\n");
}

TEST_CASE("a long line that stalls is broken so that the others go on") {
  LineSink sink(false);
  sink.add(0, "[0] ", {.text = "x", .ends = false}, kSinkNow);
  CHECK_FALSE(sink.deadline());
  sink.add(1, "[1] ", {.text = "y\n"}, kSinkNow);
  REQUIRE(sink.deadline());
  sink.tick(*sink.deadline() - Duration(1));
  CHECK(sink.holds(1));
  sink.tick(*sink.deadline());
  CHECK(sink.text() == "[0] x\n[1] y\n");
  sink.add(0, "[0] ", {.text = "xx\n", .begins = false}, kSinkNow);
  CHECK(sink.text() == "[0] x\n[1] y\n[0] xx\n");
}

TEST_CASE("a line whose writer pauses goes on, unless another line comes first") {
  LineSink sink(false);
  const Piece dots{.text = "..", .ends = false, .pauses = true};
  const Piece more{.text = "..", .begins = false, .ends = false, .pauses = true};
  const Piece end{.text = "\n", .begins = false};
  sink.add(0, "[0] ", dots, kSinkNow);
  CHECK(sink.in_line_of(0));
  sink.add(0, "[0] ", more, kSinkNow);
  sink.add(1, "[1] ", {.text = "line\n"}, kSinkNow);
  CHECK_FALSE(sink.in_line_of(0));
  CHECK_FALSE(sink.holds(1));
  sink.add(0, "[0] ", end, kSinkNow);
  sink.add(0, "[0] ", dots, kSinkNow);
  sink.add(1, "[1] ", dots, kSinkNow);
  sink.add(0, "[0] ", {.text = "over\n", .begins = false}, kSinkNow);
  sink.add(1, "[1] ", end, kSinkNow);
  CHECK(sink.text() == "[0] ....\n[1] line\n[0] ..\n[1] ..\n[0] over\n");
}

TEST_CASE("a terminal draws unfinished lines in place, below all others") {
  LineSink terminal(true);
  terminal.draw("[0] ", {"10%"});
  CHECK(terminal.drawn());
  terminal.add(1, "[1] ", {.text = "line\n"}, kSinkNow);
  CHECK_FALSE(terminal.drawn());
  // A line that is wider than the terminal is not wrapped.
  CHECK(terminal.text() == "\x1b[?7l[0] 10%\x1b[?7h\r\x1b[K[1] line\n");
  terminal.text().clear();
  terminal.draw("[0] ", {"epochs", "steps", "batches"});
  terminal.draw("[1] ", {"epochs", "steps"});
  terminal.draw("[1] ", {});
  CHECK(terminal.text() ==
        "\x1b[?7l[0] epochs\n[0] steps\n[0] batches\x1b[?7h\r\x1b[2A\x1b[J"
        "\x1b[?7l[1] epochs\n[1] steps\x1b[?7h\r\x1b[1A\x1b[J");
  CHECK_FALSE(terminal.drawn());
  LineSink file(false);
  file.draw("[0] ", {"10%"});
  CHECK(file.text().empty());
}

}  // namespace
}  // namespace distrun::launcher
