#include <catch2/catch_test_macros.hpp>

#include "launcher/report/failure_report.h"

namespace distrun::launcher {
namespace {

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
