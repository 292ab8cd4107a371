#include "launcher/report/lines/fold.h"

#include <catch2/catch_test_macros.hpp>
#include <random>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr TimePoint kFirstFold{};

void print(Fold& fold, int rank, const std::string& text, TimePoint now = kFirstFold, int stream = 0) {
  fold.add({.stream = stream, .text = text + "\n", .ranks = {rank}, .since = now});
}

std::string shown(const std::vector<Fold::Line>& lines) {
  std::string out;
  for (const Fold::Line& line : lines) out += "[" + ranges(line.ranks) + "] " + line.text;
  return out;
}

TEST_CASE("a line that all ranks say is shown once, as soon as the last has said it") {
  Fold fold(3);
  print(fold, 1, "epoch 1");
  print(fold, 0, "epoch 1");
  CHECK(fold.take(kFirstFold).empty());
  CHECK(fold.deadline() == kFirstFold + Fold::kWait);
  print(fold, 2, "epoch 1");
  CHECK(shown(fold.take(kFirstFold)) == "[0-2] epoch 1\n");
  CHECK_FALSE(fold.deadline());
  CHECK_FALSE(fold.holds(0));
}

TEST_CASE("a line waits for others for a moment only") {
  Fold fold(3);
  print(fold, 0, "hello");
  print(fold, 2, "hello", kFirstFold + Fold::kWait / 2);
  CHECK(fold.take(kFirstFold + Fold::kWait - Duration(1)).empty());
  CHECK(shown(fold.take(kFirstFold + Fold::kWait)) == "[0,2] hello\n");
  print(fold, 1, "hello", kFirstFold + Fold::kWait);
  CHECK(shown(fold.take(kFirstFold + 2 * Fold::kWait)) == "[1] hello\n");
}

TEST_CASE("equal lines around one that differs are one, whoever comes first") {
  Fold fold(3);
  for (const int rank : {2, 0, 1}) {
    print(fold, rank, "same");
    print(fold, rank, "mine " + std::to_string(rank));
    print(fold, rank, "end");
  }
  CHECK(shown(fold.take(kFirstFold)) == "[0-2] same\n");
  CHECK(shown(fold.take(kFirstFold + Fold::kWait)) == "[2] mine 2\n[0] mine 0\n[1] mine 1\n[0-2] end\n");
}

TEST_CASE("a line that differs does not hold up the others for longer than a moment") {
  Fold fold(2);
  print(fold, 0, "old");
  std::string all;
  for (int i = 1; i <= 10; ++i) {
    const TimePoint now = kFirstFold + i * Fold::kWait / 10;
    print(fold, 1, std::to_string(i), now);
    print(fold, 1, "old", now);
    all += shown(fold.take(now));
  }
  CHECK(all.find("[0-1] old") != std::string::npos);
}

TEST_CASE("a rank's lines never change places") {
  Fold fold(2);
  print(fold, 0, "a");
  print(fold, 0, "b");
  print(fold, 1, "b");
  print(fold, 1, "a");
  CHECK(shown(fold.take_all()) == "[0] a\n[0-1] b\n[1] a\n");
  std::mt19937 random(3);
  Fold many(5);
  std::vector<std::string> said(5);
  std::vector<std::string> seen(5);
  for (int i = 0; i < 20000; ++i) {
    const TimePoint now = kFirstFold + std::chrono::milliseconds(i);
    const int rank = static_cast<int>(random() % 5);
    const std::string text(1, static_cast<char>('a' + random() % 9));
    said[static_cast<std::size_t>(rank)] += text;
    print(many, rank, text, now);
    const auto lines = i % 1000 == 0 ? many.take_up_to(rank, now) : many.take(now);
    CHECK((i % 1000 != 0 || !many.holds(rank)));
    for (const Fold::Line& line : lines) {
      for (const int who : line.ranks) seen[static_cast<std::size_t>(who)] += line.text.front();
    }
  }
  for (const Fold::Line& line : many.take_all()) {
    for (const int who : line.ranks) seen[static_cast<std::size_t>(who)] += line.text.front();
  }
  CHECK(seen == said);
}

TEST_CASE("a line that a rank says twice is shown twice") {
  Fold fold(2);
  for (int i = 0; i < 2; ++i) {
    print(fold, 0, "again");
    print(fold, 1, "again");
  }
  CHECK(shown(fold.take(kFirstFold)) == "[0-1] again\n[0-1] again\n");
}

TEST_CASE("standard output and standard error are not one") {
  Fold fold(2);
  print(fold, 0, "x", kFirstFold, 0);
  print(fold, 1, "x", kFirstFold, 1);
  CHECK(shown(fold.take_all()) == "[0] x\n[1] x\n");
}

TEST_CASE("nobody waits for a rank that has ended") {
  Fold fold(3);
  fold.finished(2);
  fold.finished(2);
  print(fold, 0, "x");
  print(fold, 1, "x");
  CHECK(shown(fold.take(kFirstFold)) == "[0-1] x\n");
  print(fold, 0, "y");
  CHECK(fold.take(kFirstFold).empty());
  fold.finished(1);
  CHECK(shown(fold.take(kFirstFold)) == "[0] y\n");
  Fold one(1);
  print(one, 0, "alone");
  CHECK(shown(one.take(kFirstFold)) == "[0] alone\n");
}

TEST_CASE("a flood of lines that all differ is not held") {
  Fold fold(2);
  std::size_t held = 0;
  for (int i = 0; i < 100000; ++i) {
    held += 1 - fold.take(kFirstFold).size();
    print(fold, 0, std::to_string(i) + std::string(100, 'x'));
  }
  CHECK(held < 8000);
  CHECK(fold.holds(0));
}

}  // namespace
}  // namespace distrun::launcher
