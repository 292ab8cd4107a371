#include <catch2/catch_test_macros.hpp>
#include <random>

#include "launcher/report/failure_report.h"
#include "launcher/report/lines/line_assembler.h"
#include "launcher/report/lines/line_sink.h"

namespace distrun::launcher {
namespace {

std::vector<Piece> feed(LineAssembler& assembler, std::string_view bytes) {
  std::vector<Piece> out;
  assembler.feed(bytes, [&out](Piece piece) { out.push_back(std::move(piece)); });
  return out;
}

std::string finish(LineAssembler& assembler) {
  std::string out;
  assembler.finish([&out](const Piece& piece) { out += piece.text; });
  return out;
}

constexpr TimePoint kNow{};

TEST_CASE("lines come whole however they are cut") {
  const std::string text = "first\n\nzweite Zeile \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n10%\r20%\r100%\nlast";
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
    all += finish(assembler);
    CHECK(all == text + "\n");
    CHECK(finish(assembler).empty());
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
}

TEST_CASE("a progress bar without line ends stays bounded and is not lost") {
  LineAssembler assembler(64);
  std::string all;
  for (int i = 0; i < 100; ++i) {
    for (const Piece& piece : feed(assembler, "\r" + std::to_string(i) + "%")) {
      CHECK(piece.begins);
      CHECK(piece.ends);
      all += piece.text;
    }
  }
  all += finish(assembler);
  for (int i = 0; i < 100; ++i) CHECK(all.find("\r" + std::to_string(i) + "%") != std::string::npos);
}

TEST_CASE("what a progress bar shows") {
  LineAssembler assembler;
  feed(assembler, "\r 10%\r 2");
  CHECK(assembler.progress() == " 2");
  feed(assembler, "0% \xe2\x82");  // the euro sign is not complete
  CHECK(assembler.progress() == " 20% ");
  feed(assembler, "\xac\r");
  CHECK(assembler.progress() == " 20% \xe2\x82\xac");
  CHECK(visible_part("a\rbb\r\n") == "bb\n");
  CHECK(visible_part("plain\r\n") == "plain\n");
  LineAssembler plain;
  feed(plain, "no bar");
  CHECK(plain.progress().empty());
  CHECK(plain.unfinished() == "no bar");
  feed(plain, " \xe2");
  CHECK(plain.unfinished() == "no bar ");
  CHECK(assembler.unfinished().empty());
}

TEST_CASE("what a progress bar has been drawn over is forgotten when it is taken") {
  LineAssembler assembler;
  CHECK(assembler.take_progress().empty());
  feed(assembler, "\r 10%\r 20%");
  CHECK(assembler.take_progress() == " 20%");
  feed(assembler, "\r 30%\r");
  CHECK(assembler.take_progress() == " 30%");
  CHECK(feed(assembler, "\n").at(0).text == "\r 30%\r\n");
  feed(assembler, "a\rb");
  CHECK(assembler.take_progress() == "b");
  CHECK(feed(assembler, "c\n").at(0).text == "\rbc\n");
  feed(assembler, "5%\r");
  CHECK(assembler.take_progress() == "5%");
  feed(assembler, "text");
  CHECK(assembler.progress() == "text");
  CHECK(finish(assembler) == "5%\rtext\n");
}

TEST_CASE("streams do not mix within a line") {
  LineSink sink(false);
  sink.add(0, "[0] ", {.text = "a\n"}, kNow);
  sink.add(1, "[1] ", {.text = "long ", .begins = true, .ends = false}, kNow);
  sink.add(0, "[0] ", {.text = "b\n"}, kNow);
  CHECK(sink.holds(0));
  sink.add(1, "[1] ", {.text = "line ", .begins = false, .ends = false}, kNow);
  sink.add(2, "[2] ", {.text = "c\n"}, kNow);
  sink.add(1, "[1] ", {.text = "end\n", .begins = false, .ends = true}, kNow);
  CHECK(sink.text() == "[0] a\n[1] long line end\n[0] b\n[2] c\n");
  CHECK_FALSE(sink.holds(0));
}

TEST_CASE("two long lines come one after the other") {
  LineSink sink(false);
  sink.add(0, "[0] ", {.text = "x", .ends = false}, kNow);
  sink.add(1, "[1] ", {.text = "y", .ends = false}, kNow);
  sink.add(2, "[2] ", {.text = "z\n"}, kNow);
  sink.add(1, "[1] ", {.text = "yy\n", .begins = false}, kNow);
  sink.add(0, "[0] ", {.text = "xx\n", .begins = false}, kNow);
  CHECK(sink.text() == "[0] xxx\n[1] yyy\n[2] z\n");
}

TEST_CASE("a long line that stalls is broken so that the others go on") {
  LineSink sink(false);
  sink.add(0, "[0] ", {.text = "x", .ends = false}, kNow);
  CHECK_FALSE(sink.deadline());
  sink.add(1, "[1] ", {.text = "y\n"}, kNow);
  REQUIRE(sink.deadline());
  sink.tick(*sink.deadline() - Duration(1));
  CHECK(sink.holds(1));
  sink.tick(*sink.deadline());
  CHECK(sink.text() == "[0] x\n[1] y\n");
  sink.add(0, "[0] ", {.text = "xx\n", .begins = false}, kNow);
  CHECK(sink.text() == "[0] x\n[1] y\n[0] xx\n");
}

TEST_CASE("a terminal draws progress in place, a file gets the bytes") {
  LineSink terminal(true);
  terminal.progress("[0] ", "10%");
  terminal.add(1, "[1] ", {.text = "line\n"}, kNow);
  terminal.add(0, "[0] ", {.text = "\r10%\r100%\n"}, kNow);
  // A line that is wider than the terminal is not wrapped.
  CHECK(terminal.text() == "\r\x1b[K\x1b[?7l[0] 10%\x1b[?7h\r\x1b[K[1] line\n[0] 100%\n");
  LineSink file(false);
  file.progress("[0] ", "10%");
  file.add(0, "[0] ", {.text = "\r10%\r100%\n"}, kNow);
  CHECK(file.text() == "[0] \r10%\r100%\n");
}

TEST_CASE("how a rank ended, in words") {
  CHECK(text_of(cause_of_end(0, 3)) == "exited with code 3");
  CHECK(text_of(cause_of_end(9, 0)) == "killed by signal 9 (SIGKILL)");
  CHECK(text_of(cause_of_end(9, 0, true)).find("OOM") != std::string::npos);
  CHECK(signal_name(64).find("64") != std::string::npos);
}

TEST_CASE("the report starts with the first cause and folds the rest") {
  const std::string first = first_cause_report({.rank = 3,
                                                .host = "h",
                                                .pid = 42,
                                                .cause = cause_of_end(11, 0),
                                                .last_lines = {"one", "two"},
                                                .exit_code = 139});
  CHECK(first ==
        "rank 3 on host h (pid 42) was killed by signal 11 (SIGSEGV). This ended the job; exit code 139.\n"
        "The last lines it wrote:\n| one\n| two\n");
  const std::string rest = follow_up_report({{.rank = 0, .cause = cause_of_end(0, 1), .last_line = "RankLost: rank 3"},
                                             {.rank = 1, .cause = cause_of_end(0, 1), .last_line = "RankLost: rank 3"},
                                             {.rank = 2, .ended_by_us = true}},
                                            true);
  CHECK(rest.find("ranks 0-1 exited with code 1: RankLost: rank 3\n") != std::string::npos);
  CHECK(rest.find("rank 2 was ended by distrun\n") != std::string::npos);
  CHECK(follow_up_report({}, true).empty());
}

TEST_CASE("how a first cause reads depends on what it is, not on what a rank says") {
  const auto line = [](Cause cause) {
    const std::string text = first_cause_report({.rank = 1, .host = "h", .cause = std::move(cause)});
    return text.substr(0, text.find('\n'));
  };
  CHECK(line(cause_of_end(0, 3)) == "rank 1 on host h exited with code 3. This ended the job.");
  CHECK(line({.kind = CauseKind::kStalled, .text = "no answer"}) ==
        "rank 1 on host h held the others up: no answer. This ended the job.");
  CHECK(line({.kind = CauseKind::kStalled, .state = 'T', .text = "no answer"}) ==
        "rank 1 on host h is stopped (T: by a signal) and held the others up: no answer. This ended the job.");
  CHECK(line({.kind = CauseKind::kStalled, .state = 'D', .text = "no answer"})
            .find("is blocked in the kernel (D: by a disk") != std::string::npos);
  CHECK(line({.kind = CauseKind::kDeadlock, .text = "deadlock: all wait"}) ==
        "deadlock: all wait. This ended the job.");
  const auto link = [](LinkEnd end, CauseKind kind) {
    return Cause{.kind = kind,
                 .link = BrokenLink{.from = {.rank = 0, .host = "g"}, .to = {.rank = 1, .host = "h"}, .end = end}};
  };
  CHECK(line(link(LinkEnd::kClosed, CauseKind::kLinkEnded)) ==
        "rank 1 on host h closed its connection to rank 0 (g); both run. This ended the job.");
  CHECK(line(link(LinkEnd::kUnfinished, CauseKind::kBadRecord)) ==
        "rank 1 on host h began a message to rank 0 (g) and did not end it: a library may have written into a "
        "descriptor of distrun's. This ended the job.");
  for (const char* said : {"killed the wrong process", "exited the loop", "held by nobody"}) {
    CHECK(line({.kind = CauseKind::kRaised, .text = said}) ==
          "rank 1 on host h failed: " + std::string(said) + ". This ended the job.");
  }
  CHECK(line({.kind = CauseKind::kLeftEarly, .text = "left"}) ==
        "rank 1 on host h left early: it ended in good order while other ranks still needed it; let every rank do the "
        "same number of steps, and call shutdown() before it ends. This ended the job.");
  Cause ended = cause_of_end(15, 0);
  ended.by_other = true;
  CHECK(line(ended) ==
        "rank 1 on host h was killed by signal 15 (SIGTERM) by its agent, which something other than distrun told to "
        "end (scancel?). This ended the job.");
}

TEST_CASE("a lost connection: what runs on may be a shell around the process that had it") {
  LostConnection lost{.rank = 3, .host = "h", .started = 42, .pid = 43, .how = "end of file"};
  const std::string below =
      "the connection of rank 3 on host h to the launcher has ended (end of file), but what distrun started there (pid "
      "42) runs on: the process below it that used distrun (pid 43) has ended or has closed it";
  CHECK(lost_connection_report(lost) == below);
  lost.remote = true;
  CHECK(lost_connection_report(lost) == below + ", or the network between them fails");
  lost.pid = 42;
  const std::string itself = "rank 3 on host h has lost its connection to the launcher (end of file) but runs on: ";
  CHECK(lost_connection_report(lost) ==
        itself + "the network between them fails, or a firewall or the process itself has ended it");
  lost.remote = false;
  CHECK(lost_connection_report(lost) == itself + "a firewall or the process itself has ended it");
}

}  // namespace
}  // namespace distrun::launcher
