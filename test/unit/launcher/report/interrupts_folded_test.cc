// Tracebacks of KeyboardInterrupt after Ctrl-C.
#include "launcher/report/errors/interrupts_folded.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace distrun::launcher {
namespace {

using Lines = std::vector<std::string>;

const Lines kLoading = {"Traceback (most recent call last):\n",
                        "  File \"a.py\", line 1, in <module>\n",
                        "    import torch\n",
                        "  File \"torch/__init__.py\", line 9, in <module>\n",
                        "    f()\n",
                        "    ^^^\n"};
const std::string kInterrupt = "KeyboardInterrupt\n";

std::string shown(InterruptsFolded& folded, int rank, const Lines& lines) {
  std::string out;
  for (const std::string& line : lines) {
    for (const Piece& piece : folded.pass(rank, {.text = line})) out += piece.text;
  }
  return out;
}

std::string text_of(const Lines& lines) {
  std::string out;
  for (const std::string& line : lines) out += line;
  return out;
}

Lines with(Lines lines, const Lines& more) {
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

TEST_CASE("the traceback of a program that loaded libraries when it was interrupted is counted and not shown") {
  InterruptsFolded folded(4);
  folded.start({0, 2, 3});
  CHECK(shown(folded, 0, with(kLoading, {kInterrupt})).empty());
  CHECK(shown(folded, 2, with(kLoading, {"KeyboardInterrupt: ^C\n"})).empty());
  CHECK(shown(folded, 0, {"after\n"}) == "after\n");
  CHECK(folded.finish(2).empty());
  CHECK(folded.folded() == std::vector<int>{0, 2});
  // Before Python itself has started.
  const Lines fatal = {"Fatal Python error: init_import_site: Failed to import the site module\n",
                       "Python runtime state: initialized\n", "Traceback (most recent call last):\n",
                       "  File \"<frozen importlib._bootstrap>\", line 1176, in _find_and_load\n"};
  CHECK(shown(folded, 3, with(fatal, {kInterrupt})).empty());
  CHECK(folded.finish(3).empty());
  CHECK(folded.folded() == std::vector<int>{0, 2, 3});
}

TEST_CASE("interrupts that follow from each other are folded whole, and other errors are shown whole") {
  const Lines then = {"\n", "During handling of the above exception, another exception occurred:\n", "\n",
                      "Traceback (most recent call last):\n", "  File \"a.py\", line 2, in <module>\n"};
  const Lines chain = with(with(kLoading, {kInterrupt}), then);
  InterruptsFolded folded(2);
  folded.start({0, 1});
  CHECK(shown(folded, 0, with(chain, {kInterrupt})).empty());
  CHECK(folded.finish(0).empty());
  const Lines other = with(chain, {"ImportError: no torch\n"});
  CHECK(shown(folded, 1, other) == text_of(other));
  CHECK(folded.folded() == std::vector<int>{0});
}

TEST_CASE("an empty line, as Python 3.11 writes it below some frames, does not end a traceback") {
  InterruptsFolded folded(1);
  folded.start({0});
  CHECK(shown(folded, 0, with(kLoading, {"    def __init__(self, name,\n", "\n", kInterrupt})).empty());
  CHECK(folded.finish(0).empty());
  CHECK(folded.folded() == std::vector<int>{0});
}

TEST_CASE("a program that was at work, other errors, and ranks that are not watched, are shown in order") {
  const Lines working = {"Traceback (most recent call last):\n", "  File \"a.py\", line 1, in <module>\n",
                         "    train()\n", kInterrupt};
  const Lines error = with(kLoading, {"ImportError: x\n"});
  const Lines loading = with(kLoading, {kInterrupt});
  const Lines heading = {"Exception ignored in: f\n", "no traceback\n"};
  InterruptsFolded folded(2);
  folded.start({0});
  for (const Lines& lines : {working, error, heading}) CHECK(shown(folded, 0, lines) == text_of(lines));
  CHECK(shown(folded, 1, loading) == text_of(loading));
  CHECK(folded.folded().empty());
}

TEST_CASE("a traceback without an end is shown when the rank ends, or when it is too long") {
  InterruptsFolded folded(1);
  folded.start({0});
  CHECK(shown(folded, 0, kLoading).empty());
  CHECK(folded.finish(0).size() == kLoading.size());
  CHECK(folded.finish(0).empty());
  CHECK(shown(folded, 0, {kLoading[0]}).empty());
  CHECK(shown(folded, 0, {" " + std::string(InterruptsFolded::kMostBytes, 'x')}).size() > InterruptsFolded::kMostBytes);
  CHECK(shown(folded, 0, {"next\n"}) == "next\n");
}

TEST_CASE("one line tells of all ranks that were interrupted while they loaded") {
  CHECK(interrupted_text({}).empty());
  CHECK(interrupted_text({2}) == "rank 2 was loading libraries when it was interrupted");
  CHECK(interrupted_text({0, 1, 3}) == "ranks 0-1, 3 were loading libraries when they were interrupted");
}

}  // namespace
}  // namespace distrun::launcher
