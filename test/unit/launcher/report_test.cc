#include <catch2/catch_test_macros.hpp>

#include "launcher/report/failure_report.h"

namespace distrun::launcher {
namespace {

TEST_CASE("how a rank ended, in words") {
  CHECK(text_of(cause_of_end(0, 3)) == "exited with code 3");
  CHECK(text_of(cause_of_end(9, 0)) == "killed by signal 9 (SIGKILL)");
  CHECK(text_of(cause_of_end(9, 0, true)).find("OOM") != std::string::npos);
  CHECK(text_of(cause_of_end(0, 137, true)).find("OOM") != std::string::npos);
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
        "rank 3 on host h (pid 42) was killed by signal 11 (SIGSEGV).\nThis ended the job; exit code 139.\n"
        "The last lines it wrote:\n| one\n| two\n");
  const std::string rest = follow_up_report({{.rank = 0, .cause = cause_of_end(0, 1), .last_line = "RankLost: rank 3"},
                                             {.rank = 1, .cause = cause_of_end(0, 1), .last_line = "RankLost: rank 3"},
                                             {.rank = 2, .ended_by_us = true}},
                                            true);
  CHECK(rest ==
        "3 other ranks ended because of it: 2 exited with code 1, the launcher ended 1. --all-errors shows their "
        "errors.");
  CHECK(follow_up_report({{.rank = 0, .cause = cause_of_end(9, 0)}, {.rank = 1, .cause = cause_of_end(9, 0)}}, false) ==
        "2 other ranks were killed by signal 9 (SIGKILL) because of it.");
  CHECK(follow_up_report({{.rank = 0, .cause = cause_of_end(0, 1)}}, true) ==
        "1 other rank exited with code 1 because of it. --all-errors shows their errors.");
  CHECK(follow_up_report({{.rank = 2, .ended_by_us = true}}, true) == "the launcher ended 1 other rank.");
  CHECK(follow_up_report({{.rank = 2, .ended_by_us = true}}, true, true) == "the launcher ended 1 rank.");
  CHECK(follow_up_report({}, true).empty());
}

TEST_CASE("ranks that fail in the same way as the first are counted, and those that fail in another way are named") {
  using Relation = Follower::Relation;
  const Follower same{.rank = 0, .cause = cause_of_end(0, 1), .relation = Relation::kSame};
  Follower other{.rank = 2, .cause = cause_of_end(0, 1), .relation = Relation::kOther};
  other.cause.exception = "KeyError: 'lr' (train.py:3)";
  const Follower ended{.rank = 3, .ended_by_us = true};
  CHECK(follow_up_report({same}, true) == "1 other rank failed in the same way.");
  CHECK(follow_up_report({same, same, ended}, true) ==
        "2 other ranks failed in the same way.\nThe launcher ended 1 other rank.");
  CHECK(follow_up_report({other}, true) ==
        "rank 2 failed too: it raised KeyError: 'lr' (train.py:3) and exited with code 1.");
  const std::string many = follow_up_report({other, other, other, other, other, same}, true);
  CHECK(many.starts_with("1 other rank failed in the same way.\nrank 2 failed too: "));
  CHECK(many.ends_with("\n1 other rank failed in other ways."));
}

TEST_CASE("last lines that the user has just seen are not shown again") {
  FailureReport failure{.rank = 1, .host = "h", .cause = cause_of_end(11, 0), .last_lines = {"one"}};
  failure.last_lines_shown = true;
  CHECK(first_cause_report(failure).ends_with("\nThis ended the job.\n"));
  failure.last_lines.clear();
  CHECK(first_cause_report(failure).ends_with("It had printed nothing.\n"));
}

TEST_CASE("how a first cause reads depends on what it is, not on what a rank says") {
  const auto line = [](Cause cause) {
    const std::string text = first_cause_report({.rank = 1, .host = "h", .cause = std::move(cause)});
    return text.substr(0, text.find('\n'));
  };
  CHECK(line(cause_of_end(0, 3)) == "rank 1 on host h exited with code 3.");
  Cause raised = cause_of_end(0, 1);
  raised.exception = "ValueError: bad (train.py:3)";
  CHECK(line(raised) == "rank 1 on host h raised ValueError: bad (train.py:3) and exited with code 1.");
  CHECK(line({.kind = CauseKind::kStalled, .text = "no answer"}) ==
        "rank 1 on host h blocked the other ranks: no answer.");
  CHECK(line({.kind = CauseKind::kStalled, .state = 'T', .text = "no answer"}) ==
        "rank 1 on host h is stopped (T: by a signal) and blocked the other ranks: no answer.");
  CHECK(line({.kind = CauseKind::kStalled, .state = 'D', .text = "no answer"})
            .find("is blocked in the kernel (D: by a disk") != std::string::npos);
  CHECK(line({.kind = CauseKind::kDeadlock, .text = "deadlock: all wait"}) == "deadlock: all wait.");
  const auto link = [](LinkEnd end, CauseKind kind) {
    return Cause{.kind = kind,
                 .link = BrokenLink{.from = {.rank = 0, .host = "g"}, .to = {.rank = 1, .host = "h"}, .end = end}};
  };
  CHECK(line(link(LinkEnd::kClosed, CauseKind::kLinkEnded)) ==
        "rank 1 on host h closed its connection to rank 0 (g); both run.");
  CHECK(line(link(LinkEnd::kUnfinished, CauseKind::kBadRecord)) ==
        "rank 1 on host h began a message to rank 0 (g) and did not end it: a library may have written into a "
        "descriptor of distrun's.");
  for (const char* said : {"killed the wrong process", "exited the loop", "held by nobody"}) {
    CHECK(line({.kind = CauseKind::kRaised, .text = said}) == "rank 1 on host h failed: " + std::string(said) + ".");
  }
  CHECK(line({.kind = CauseKind::kLeftEarly, .text = "left"}) ==
        "rank 1 on host h left early: it exited with code 0 while other ranks still needed it.");
  const FailureReport early{.rank = 1, .host = "h", .cause = {.kind = CauseKind::kLeftEarly}, .tensor = "grad"};
  CHECK(first_cause_report(early).starts_with(
      "rank 1 on host h left early: it exited with code 0 while other ranks still needed it for 'grad'.\n"));
  Cause ended = cause_of_end(15, 0);
  ended.by_other = true;
  CHECK(line(ended) ==
        "rank 1 on host h was killed by signal 15 (SIGTERM) by its agent, which something other than distrun told to "
        "end (scancel?).");
}

TEST_CASE("the words of a rank cannot command the terminal, and keep their lines") {
  const Cause cause{.kind = CauseKind::kRaised, .text = "bad \x1b[2J row\nsecond line"};
  CHECK(first_cause_report({.rank = 1, .host = "h", .cause = cause}) ==
        "rank 1 on host h failed: bad \\x1b[2J row\nsecond line.\nThis ended the job.\n");
}

TEST_CASE("a failure is told once: what, why and what to do") {
  const std::vector<std::string> traceback = {"Traceback (most recent call last):", "ValueError: bad"};
  Cause exited = cause_of_end(0, 1);
  exited.exception = "ValueError: bad (train.py:3)";
  for (const Cause& cause : {Cause{.kind = CauseKind::kRaised, .text = "ValueError: bad (train.py:3)"}, exited}) {
    const std::string text =
        first_cause_report({.rank = 1, .host = "h", .cause = cause, .last_lines = traceback, .exit_code = 1});
    CHECK(text.find("ValueError: bad") == text.rfind("ValueError: bad"));
    CHECK(text.ends_with(".\nThis ended the job; exit code 1.\n"));
  }
  const auto cure = [](const Cause& cause) {
    const std::string text = first_cause_report({.rank = 1, .host = "h", .cause = cause, .last_lines = {"x"}});
    const std::size_t line = text.find("This ended the job.\n") + 20;
    return text.substr(line, text.find('\n', line) - line);
  };
  CHECK(cure(cause_of_end(9, 0, true)).starts_with("Use less memory for each rank"));
  CHECK(cure({.kind = CauseKind::kLeftEarly}) ==
        "The ranks did different numbers of steps: let each do as many, or call join() at its end.");
  CHECK(cure({.kind = CauseKind::kLeftEarly, .leave = Leave::kNoShutdown}) ==
        "Let every rank do the same number of steps, and call shutdown() before it ends.");
  for (const Leave leave : {Leave::kNoInit, Leave::kNoNextInit}) {
    CHECK(cure({.kind = CauseKind::kLeftEarly, .leave = leave}) ==
          "Let every rank call init(), or start only the ranks that call it (-np).");
  }
  CHECK(cure({.kind = CauseKind::kRaised, .text = "EOFError: Ran out of input (data.py:3)"}).empty());
}

TEST_CASE("a prompt without input is one line, with an option that can be typed") {
  Cause exited = cause_of_end(0, 1);
  exited.exception = "EOFError: EOF when reading a line (train.py:3)";
  CHECK(first_cause_report({.rank = 3, .host = "h", .cause = exited, .last_lines = {"name? "}, .exit_code = 1}) ==
        "rank 3 on host h had no input at a prompt (train.py:3): use --tty 3. Exit code 1.\n");
  CHECK(first_cause_report({.rank = 1, .host = "h", .cause = {.kind = CauseKind::kRaised, .text = "BdbQuit"}}) ==
        "rank 1 on host h had no input at a prompt: use --tty 1. Exit code 1.\n");
}

TEST_CASE("a cure that the plan knows is told, except at a prompt") {
  const FailureReport failure{.rank = 1, .host = "h", .cause = cause_of_end(0, 1), .hint = "add --tf"};
  CHECK(first_cause_report(failure).find("This ended the job.\nAdd --tf.\n") != std::string::npos);
}

TEST_CASE("a rank that blocked the others: the cure is the line of the program where it was") {
  FailureReport failure{.rank = 1, .host = "h", .exit_code = 1};
  failure.cause = {.kind = CauseKind::kStalled, .text = "no answer"};
  CHECK(first_cause_report(failure).starts_with(
      "rank 1 on host h blocked the other ranks: no answer.\nThis ended the job; exit code 1.\nIt had printed"));
  RankView view{.rank = 1, .host = "h", .missed = true, .state = net::ProgramState{}, .note = {}};
  view.state->threads = {
      {.name = "MainThread",
       .frames = {{.place = {.file = "/usr/lib/python3.11/threading.py", .line = 320}, .function = "wait"},
                  {.place = {.file = "/a/train.py", .line = 33}, .function = "load"},
                  {.place = {.file = "/a/train.py", .line = 90}, .function = "<module>"}}}};
  failure.hang.views = {view};
  CHECK(first_cause_report(failure).find("Look at the line where rank 1 was: /a/train.py:33 in load.\n") !=
        std::string::npos);
}

TEST_CASE("an agent of this machine that was killed says nothing of its host") {
  const std::string text = host_loss_report(
      {.kind = CauseKind::kHostLost, .agent_here = true, .text = "the agent on host h (pid 3) was killed"}, {0});
  CHECK(text.find("See if the host is up") == std::string::npos);
  CHECK(text.find("The agent is distrun's process that starts and watches the ranks of a host") != std::string::npos);
}

TEST_CASE("what follows a lost host is its ranks, the exit code and a cure, and no sentence has two ends") {
  const std::string text = host_loss_report(
      {.kind = CauseKind::kHostLost, .text = "host h2 is lost: Connection to h2 closed by remote host."}, {1});
  CHECK(text.starts_with(
      "host h2 is lost: Connection to h2 closed by remote host.\nRank 1 ran there. This ended the job; "
      "exit code 75.\nSee if the host is up"));
  const Cause own{.kind = CauseKind::kOwnNetwork, .text = "this machine's own network is gone: no carrier"};
  CHECK(host_loss_report(own, {0, 1}) ==
        "this machine's own network is gone: no carrier.\nRanks 0-1 ran there. This ended the job; exit code 75.\n"
        "Look at the network of this machine (ip addr, ip route).");
  CHECK(host_loss_report(own, {}).find("ran there") == std::string::npos);
}

TEST_CASE("a broken network has a cure too") {
  FailureReport failure{.exit_code = 75};
  failure.cause = {.kind = CauseKind::kNetworkBroken,
                   .link = BrokenLink{
                       .from = {.rank = 1, .host = "h2", .number = 1}, .to = {.rank = 0, .host = "h1"}, .silent = 30}};
  CHECK(link_report(failure) ==
        "rank 1 (h2) has heard nothing from rank 0 (h1) for 30 s; both run: the network between h1 and h2 is broken.\n"
        "This ended the job; exit code 75.\nTest the network with distrun check -H h2,h1.");
}

TEST_CASE("a rank that raised an exception and then waited has that as its cause, told once") {
  FailureReport failure{.rank = 1, .host = "h", .exit_code = 1};
  failure.cause = {.kind = CauseKind::kStalled, .exception = "ValueError: bad (train.py:3)", .text = "no answer"};
  RankView view{.rank = 1, .host = "h", .missed = true, .state = net::ProgramState{}, .note = {}};
  view.state->exception = "ValueError: bad";
  failure.hang.views = {view};
  const std::string text = first_cause_report(failure);
  CHECK(
      text.starts_with("rank 1 on host h raised ValueError: bad (train.py:3) and then waited for other ranks: no "
                       "answer.\nThis ended the job; exit code 1.\n"));
  CHECK(text.find("ValueError") == text.rfind("ValueError"));
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
