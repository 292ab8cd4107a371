#include "launcher/report/errors/repeated_errors.h"

#include <catch2/catch_test_macros.hpp>

#include "launcher/report/errors/error_lines.h"

namespace distrun::launcher {
namespace {

using Text = std::vector<std::string>;
const TimePoint kStart = Clock::now();
const Text kError = {"Traceback (most recent call last):", "  File \"a.py\", line 1, in <module>", "    import x",
                     "ModuleNotFoundError: no x"};

std::string text_of(const std::deque<Piece>& pieces) {
  std::string out;
  for (const Piece& piece : pieces) out += piece.text;
  return out;
}

std::string text_of(const std::vector<ErrorLines::Of>& all) {
  std::string out;
  for (const auto& one : all) out += text_of(one.pieces);
  return out;
}

std::string joined(const Text& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

std::string shown(RepeatedErrors& errors, int rank, const Text& lines, bool first = false) {
  std::string out;
  for (const std::string& line : lines) out += text_of(errors.pass(rank, {.text = line + "\n"}, first, kStart));
  return out;
}

std::string shown(ErrorLines& errors, int rank, const Text& lines) {
  std::string out;
  for (const std::string& line : lines) out += text_of(errors.pass(rank, {.text = line + "\n"}, false, kStart));
  return out;
}

std::string due_of(std::vector<RepeatedErrors::Release> due) {
  std::string out;
  for (const auto& one : due) out += text_of(one.pieces);
  return out;
}

TEST_CASE("of equal tracebacks the first is shown, and the others are held for a while") {
  RepeatedErrors errors;
  CHECK(shown(errors, 2, kError) == joined(kError));
  CHECK(shown(errors, 0, kError).empty());
  CHECK(errors.holds(0));
  CHECK(errors.due(kStart).empty());
  REQUIRE(errors.deadline() == kStart + RepeatedErrors::kWait);
  const auto due = errors.due(*errors.deadline());
  REQUIRE(due.size() == 1);
  CHECK(due[0].repeated == kError.size());
  CHECK(text_of(due[0].pieces) == joined(kError));
  CHECK_FALSE(errors.holds(0));
}

TEST_CASE("tracebacks that are written at the same time are compared line by line") {
  RepeatedErrors errors;
  for (const std::string& line : kError) {
    CHECK(shown(errors, 0, {line}) == line + "\n");
    CHECK(shown(errors, 1, {line}).empty());
  }
  CHECK(errors.take(1).repeated == kError.size());
  // Rank 2 is ahead of rank 3 here, whose lines are not known yet.
  RepeatedErrors ahead;
  CHECK_FALSE(shown(ahead, 3, {kError[0]}).empty());
  CHECK(shown(ahead, 2, kError).empty());
  CHECK(shown(ahead, 3, {kError[1], "    import y", "ModuleNotFoundError: no y"}).size() > 0);
  CHECK(due_of(ahead.due(kStart)) == joined(kError));
}

TEST_CASE("an error that differs is shown whole as soon as that is known, in the order of writing") {
  RepeatedErrors errors;
  CHECK_FALSE(shown(errors, 0, kError).empty());
  Text other = kError;
  other.back() = "KeyError: 'x'";
  CHECK(shown(errors, 1, other) == joined(other));
  // A third rank may repeat either of them.
  CHECK(shown(errors, 2, other).empty());
  CHECK(shown(errors, 3, kError).empty());
  Text third = kError;
  third[2] = "    import z";
  CHECK(shown(errors, 4, third) == joined(third));
}

TEST_CASE("an error of syntax has no heading, and torch puts the rank before each line") {
  RepeatedErrors errors;
  const Text syntax = {"  File \"a.py\", line 2", "    if x", "        ^", "SyntaxError: expected ':'"};
  CHECK_FALSE(shown(errors, 0, syntax).empty());
  CHECK(shown(errors, 1, syntax).empty());
  CHECK_FALSE(shown(errors, 2, {"[rank2]: " + kError[0], "[rank2]: ValueError: x"}).empty());
  CHECK(shown(errors, 3, {"[rank3]: " + kError[0], "[rank3]: ValueError: x"}).empty());
}

TEST_CASE("the first lines of a rank may be the reason for its end; later lines and bars are not held") {
  RepeatedErrors errors;
  const Text usage = {"usage: train.py [-h]", "train.py: error: no --data"};
  CHECK(shown(errors, 0, usage, true) == joined(usage));
  CHECK(shown(errors, 1, usage, true).empty());
  CHECK(errors.deadline() == kStart + RepeatedErrors::kWaitOfFirst);
  CHECK(errors.take(1).repeated == 2);
  CHECK(shown(errors, 2, usage, false) == joined(usage));
  CHECK(shown(errors, 3, {usage[0], "other", usage[1]}, true) == joined({usage[0], "other", usage[1]}));
  CHECK(shown(errors, 3, usage, true) == joined(usage));
  CHECK_FALSE(errors.pass(4, {.text = usage[0] + "\n", .redrawn = true}, true, kStart).empty());
  CHECK_FALSE(errors.pass(5, {.text = usage[0], .ends = false}, true, kStart).empty());
  // A first line may be followed by an error, which decides.
  CHECK_FALSE(shown(errors, 6, {"warning"}, true).empty());
  CHECK(shown(errors, 6, kError, true) == joined(kError));
  CHECK(shown(errors, 7, {"warning", kError[0], kError[1]}, true).empty());
  CHECK(shown(errors, 7, {"ValueError: x"}) == joined({"warning", kError[0], kError[1], "ValueError: x"}));
}

TEST_CASE("what a rank writes after a repeated error keeps its place, and too much of it is shown") {
  RepeatedErrors errors;
  CHECK_FALSE(shown(errors, 0, kError).empty());
  CHECK(shown(errors, 1, kError).empty());
  CHECK(shown(errors, 1, {"after"}).empty());
  CHECK(due_of(errors.due(kStart + RepeatedErrors::kWait)) == joined(kError) + "after\n");
  CHECK(shown(errors, 2, kError).empty());
  const std::string much(RepeatedErrors::kMostBytes, 'x');
  CHECK(shown(errors, 2, {much}) == joined(kError) + much + "\n");
}

TEST_CASE("repeated errors are kept back when the first cause becomes known, and a part of one is shown") {
  ErrorLines errors(4, false);
  CHECK_FALSE(shown(errors, 0, kError).empty());
  CHECK(shown(errors, 1, kError).empty());
  CHECK(shown(errors, 2, kError).empty());
  CHECK(shown(errors, 2, {"after"}).empty());
  CHECK(shown(errors, 3, {kError[0]}).empty());
  CHECK(errors.keep_back_all_but(2).empty());
  CHECK(text_of(errors.finish(2, kStart)) == "after\n");
  CHECK(text_of(errors.release(1)) == joined(kError));
  CHECK(errors.due(TimePoint::max()).empty());
  CHECK(shown(errors, 3, {kError[1]}).empty());
  // The first cause is a rank whose error is not whole yet, and then differs.
  ErrorLines other(2, false);
  CHECK_FALSE(shown(other, 0, kError).empty());
  CHECK(shown(other, 1, {kError[0]}).empty());
  CHECK(other.keep_back_all_but(1).empty());
  CHECK(shown(other, 1, {"KeyError: 'x'"}) == joined({kError[0], "KeyError: 'x'"}));
}

TEST_CASE("without a failure repeated errors are shown, and --all-errors and Ctrl-C hold none") {
  ErrorLines errors(2, false);
  CHECK_FALSE(shown(errors, 0, kError).empty());
  CHECK(shown(errors, 1, kError).empty());
  CHECK(errors.silences(1));
  CHECK(errors.finish(1, kStart).empty());
  CHECK(text_of(errors.due(TimePoint::max())) == joined(kError));
  errors.fold_interrupts({});
  CHECK(shown(errors, 1, kError) == joined(kError));
  ErrorLines all(2, true);
  for (const int rank : {0, 1}) CHECK(shown(all, rank, kError) == joined(kError));
}

TEST_CASE("the error of a follower is kept back before the first cause is known, and shown if it is that itself") {
  ErrorLines errors(3, false);
  errors.keep_back(0);
  errors.keep_back(1);
  CHECK(shown(errors, 0, kError).empty());
  CHECK(shown(errors, 1, {"other"}).empty());
  CHECK(text_of(errors.keep_back_all_but(0)) == joined(kError));
  CHECK(shown(errors, 0, {"more"}) == "more\n");
  CHECK(text_of(errors.release(-1)) == "other\n");
}

TEST_CASE("the part of a follower's error that was not shown yet is kept back with the rest, in order") {
  ErrorLines errors(2, false);
  CHECK_FALSE(shown(errors, 0, kError).empty());
  CHECK(shown(errors, 1, {kError[0], kError[1]}).empty());
  errors.keep_back(1);
  CHECK(shown(errors, 1, {kError[2], kError[3]}).empty());
  CHECK(errors.due(TimePoint::max()).empty());
  CHECK(text_of(errors.release(1)) == joined(kError));
}

}  // namespace
}  // namespace distrun::launcher
