#include "launcher/report/lines/line_assembler.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

namespace distrun::launcher {
namespace {

using Bars = std::vector<std::string>;

std::vector<Piece> feed(LineAssembler& assembler, std::string_view bytes) {
  std::vector<Piece> out;
  assembler.feed(bytes, [&out](Piece piece) { out.push_back(std::move(piece)); });
  return out;
}

std::string finished(LineAssembler& assembler) {
  std::string out;
  assembler.finish([&out](const Piece& piece) { out += piece.text; });
  return out;
}

std::string emitted(LineAssembler& assembler, std::string_view bytes) {
  std::string out;
  for (const Piece& piece : feed(assembler, bytes)) out += piece.text;
  return out;
}

// All lines of a program that wrote these bytes.
std::string written_as_lines(std::string_view bytes) {
  LineAssembler assembler;
  std::string out = emitted(assembler, bytes);
  return out + finished(assembler);
}

TEST_CASE("lines come whole however they are cut") {
  const std::string text =
      "first\n\n\x1b[31mzweite\x1b[0m Zeile \xc3\xa4\xc2\xb0\xe2\x82\xac\xf0\x9f\x98\x80\n10%\r20%\r100%\r\n"
      "\x1b]0;title\x07\x1b[2J\xc2\x9blast";
  const std::string expected =
      "first\n\n\x1b[31mzweite\x1b[0m Zeile \xc3\xa4\xc2\xb0\xe2\x82\xac\xf0\x9f\x98\x80\n100%\nlast\n";
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    LineAssembler assembler;
    std::string all;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(1 + random() % 9, text.size() - at);
      for (const Piece& piece : feed(assembler, std::string_view(text).substr(at, size))) {
        CHECK(piece.begins);
        CHECK(piece.ends);
        CHECK(piece.text.find('\n') == piece.text.size() - 1);
        all += piece.text;
      }
      at += size;
    }
    all += finished(assembler);
    CHECK(all == expected);
    CHECK(finished(assembler).empty());
  }
}

TEST_CASE("a line beyond the limit comes in pieces that make it up") {
  LineAssembler assembler(10);
  std::string all;
  std::vector<Piece> pieces;
  for (int i = 0; i < 5; ++i) {
    for (Piece& piece : feed(assembler, "abcdefg")) pieces.push_back(std::move(piece));
  }
  for (Piece& piece : feed(assembler, "end\nnext\n")) pieces.push_back(std::move(piece));
  REQUIRE(pieces.size() >= 3);
  CHECK(pieces.front().begins);
  CHECK_FALSE(pieces.front().ends);
  CHECK_FALSE(pieces[1].begins);
  CHECK(pieces.back().text == "next\n");
  CHECK(pieces.back().begins);
  for (std::size_t i = 0; i + 1 < pieces.size(); ++i) all += pieces[i].text;
  CHECK(all == "abcdefgabcdefgabcdefgabcdefgabcdefgend\n");
  // The part that has been emitted cannot be drawn over.
  CHECK(emitted(assembler, "0123456789\rnew\n") == "0123456789\nnew\n");
}

TEST_CASE("of a progress bar only the last state is a line") {
  LineAssembler assembler(64);
  for (int i = 0; i < 100; ++i) CHECK(feed(assembler, "\r" + std::to_string(i) + "%").empty());
  const std::vector<Piece> line = feed(assembler, "\n");
  REQUIRE(line.size() == 1);
  CHECK(line[0].text == "99%\n");
  CHECK(line[0].redrawn);
  CHECK_FALSE(feed(assembler, "plain\r\n").at(0).redrawn);
  CHECK(written_as_lines("\r 60%\r     \r\n").empty());
  CHECK(written_as_lines("a\n\nb\n") == "a\n\nb\n");
  CHECK(written_as_lines("10%\b\b\b20%\nab\b\b\n") == "20%\nab\n");
  CHECK(written_as_lines("12345\x1b[3D\xc3\xa4\x1b[Kx\x1b[3Cy\n") == "12\xc3\xa4x   y\n");
  CHECK(written_as_lines("old\x1b[2K\rnew\x1b[10Gat ten\n") == "new      at ten\n");
  // Compilers write this behind each colour.
  CHECK(written_as_lines("\x1b[1m\x1b[Ka.c:\x1b[m\x1b[K error\n") == "\x1b[1ma.c:\x1b[m error\n");
}

TEST_CASE("a progress bar is shown as it looks") {
  LineAssembler assembler;
  feed(assembler, "\r 10%\r 2");
  CHECK(assembler.bars() == Bars{" 2"});
  feed(assembler, "0% \xe2\x82");  // the euro sign is not complete
  CHECK(assembler.bars() == Bars{" 20% "});
  feed(assembler, "\xac\r");
  CHECK(assembler.bars() == Bars{" 20% \xe2\x82\xac"});
  CHECK_FALSE(assembler.pauses());
  CHECK(assembler.take_bars().size() == 1);
  CHECK_FALSE(assembler.bars_moved());
  CHECK(assembler.take_bars().empty());
  feed(assembler, "\r 30%");
  CHECK(assembler.bars_moved());
  feed(assembler, "\r    \r");
  CHECK(assembler.bars().empty());
}

TEST_CASE("a line that pauses is taken in parts") {
  LineAssembler assembler;
  feed(assembler, "no bar \xe2");
  CHECK(assembler.bars().empty());
  CHECK(assembler.unfinished() == "no bar ");
  auto part = assembler.take_paused();
  REQUIRE(part);
  CHECK((part->text == "no bar " && part->begins && !part->ends && part->pauses));
  CHECK(assembler.unfinished().empty());
  CHECK_FALSE(assembler.take_paused());
  feed(assembler, "\x82\xac.");
  part = assembler.take_paused();
  REQUIRE(part);
  CHECK((part->text == "\xe2\x82\xac." && !part->begins && !part->ends));
  const std::vector<Piece> rest = feed(assembler, "\r\n");
  REQUIRE(rest.size() == 1);
  CHECK((rest[0].text == "\n" && !rest[0].begins && rest[0].ends));
  // A bar that begins as text is a line by itself.
  feed(assembler, "loading");
  CHECK(assembler.take_paused());
  CHECK(emitted(assembler, "\r 10%\r 20%\n") == "\n 20%\n");
}

// What tqdm writes for a bar at this position.
std::string drawn_bar(int position, const std::string& text) {
  std::string out(static_cast<std::size_t>(position), '\n');
  out += "\r" + text;
  for (int i = 0; i < position; ++i) out += "\x1b[A";
  return out;
}

TEST_CASE("bars above each other are drawn in place") {
  LineAssembler assembler;
  CHECK(emitted(assembler, drawn_bar(0, "epochs 0")).empty());
  CHECK(emitted(assembler, drawn_bar(1, "steps 0")) == "epochs 0\n");  // nobody knows yet that it is part of a block
  std::string all;
  for (int epoch = 1; epoch < 9; ++epoch) {
    all += emitted(assembler, drawn_bar(0, "epochs " + std::to_string(epoch)));
    for (int step = 0; step < 9; ++step) all += emitted(assembler, drawn_bar(1, "steps " + std::to_string(step)));
  }
  CHECK(all.empty());
  CHECK(assembler.bars() == Bars{"epochs 8", "steps 8"});
  CHECK(assembler.take_bars().size() == 2);
  feed(assembler, drawn_bar(1, "steps 9"));
  CHECK(assembler.take_bars() == Bars{"steps 9"});
  // A third bar, and a line that tqdm.write() puts above the bars.
  CHECK(emitted(assembler, drawn_bar(2, "batches 0")) == "epochs 8\n");
  feed(assembler, drawn_bar(0, "epochs 9"));
  CHECK(assembler.bars() == Bars{"epochs 9", "steps 9", "batches 0"});
  feed(assembler, drawn_bar(0, "        \r") + drawn_bar(1, "       \r") + drawn_bar(2, "         \r") + "a line\n");
  CHECK(emitted(assembler, drawn_bar(0, "epochs 9") + drawn_bar(1, "steps 9") + drawn_bar(2, "batches 1")) ==
        "a line\n");
  CHECK(assembler.bars() == Bars{"epochs 9", "steps 9", "batches 1"});
  CHECK(emitted(assembler, "\n\n\n") == "epochs 9\n");
  CHECK(finished(assembler) == "steps 9\nbatches 1\n");
}

TEST_CASE("lines after a block of bars are not held") {
  LineAssembler assembler;
  feed(assembler, drawn_bar(0, "epochs") + drawn_bar(1, "steps") + drawn_bar(0, "epochs") + "\n\n");
  CHECK(emitted(assembler, "Done\n") == "steps\nDone\n");
  CHECK(emitted(assembler, "a line\n\n") == "a line\n\n");
}

TEST_CASE("a program that moves up without end keeps a few lines") {
  LineAssembler assembler;
  for (int i = 0; i < 10000; ++i) feed(assembler, "\rtext\x1b[99A");
  CHECK(assembler.bars().size() <= 32);
  feed(assembler, std::string(1 << 20, 'x'));
  CHECK(finished(assembler).size() < 2000);
}

TEST_CASE("a live display that is erased from its end") {
  LineAssembler assembler;
  const std::string erase = "\r\x1b[2K\x1b[1A\x1b[2K";
  feed(assembler, "first\nsecond");
  feed(assembler, erase + "third\nfourth" + erase + "fifth\nsixth");
  CHECK(assembler.bars() == Bars{"fifth", "sixth"});
  feed(assembler, "\x1b[F\x1b[Jseventh\x1b[Eeighth");
  CHECK(assembler.bars() == Bars{"seventh", "eighth"});
  CHECK(finished(assembler) == "seventh\neighth\n");
}

TEST_CASE("colours end with their line, and no other sequence is left") {
  CHECK(written_as_lines("\x1b[31mred\nplain\n") == "\x1b[31mred\x1b[0m\nplain\n");
  CHECK(written_as_lines("\x1b[1;31mred\x1b[0m\n") == "\x1b[1;31mred\x1b[0m\n");
  CHECK(written_as_lines("\r\x1b[32m10%\r\x1b[32m20%") == "\x1b[32m20%\x1b[0m\n");
  for (const char* hidden : {"\x1b[2J",
                             "\x1b[H",
                             "\x1b[?1049h",
                             "\x1b[?25l",
                             "\x1b[8;5r",
                             "\x1b"
                             "c",
                             "\x1b(0",
                             "\x0e",
                             "\x1b]0;title\x1b\\",
                             "\x1b]8;;http://x\x07",
                             "\x1bP1;2q#\x1b\\",
                             "\x1b[>4m",
                             "\x1b[5i",
                             "\x1b[6n",
                             "\x05",
                             "\v\f",
                             "\x1bM",
                             "\x1b[3L",
                             "\xc2\x9b",
                             "\x1b[1;1H"}) {
    CHECK(written_as_lines(std::string("a") + hidden + "b\n") == "ab\n");
  }
  // A sequence without its end hides the rest of its line at most.
  CHECK(written_as_lines("a\x1b]0;title\nb\n") == "a\nb\n");
  CHECK(written_as_lines("a\x1b[3\nb\n") == "a\nb\n");
}

}  // namespace
}  // namespace distrun::launcher
