#include "launcher/job/ranks/notice.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using Means = Notice::Means;

constexpr Notice::State kTraining{.any_in_session = true};
constexpr Notice::State kPlain{};
constexpr Notice::State kEnding{.ending = true};

TEST_CASE("a notice at every process of a job is one") {
  Notice notice;
  CHECK(notice.at_agent(kTraining) == Means::kStop);
  CHECK(notice.at_agent(kTraining) == Means::kKnown);
  CHECK(notice.at_rank(kTraining) == Means::kKnown);
  CHECK(notice.at_launcher(SIGTERM, kTraining) == Means::kKnown);
}

TEST_CASE("whoever gets it first, the launcher's second SIGTERM is meant, and those of users never are") {
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) {
    const Means again = signal == SIGTERM ? Means::kUsual : Means::kKnown;
    Notice launcher;
    CHECK(launcher.at_launcher(signal, kTraining) == Means::kStop);
    CHECK(launcher.at_agent(kTraining) == Means::kKnown);
    CHECK(launcher.at_launcher(signal, kTraining) == again);
    Notice rank;
    CHECK(rank.at_rank(kTraining) == Means::kStop);
    CHECK(rank.at_launcher(signal, kTraining) == Means::kKnown);
    CHECK(rank.at_launcher(signal, kTraining) == again);
  }
}

TEST_CASE(
    "ranks that have told of it and ended, all since the last round, make it known to an agent and the launcher") {
  constexpr Notice::State kStopped{.stopping = true};
  Notice agent;
  CHECK(agent.at_agent(kStopped) == Means::kKnown);
  CHECK(agent.at_rank(kStopped) == Means::kStop);
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) {
    Notice launcher;
    CHECK(launcher.at_launcher(signal, kStopped) == Means::kKnown);
    CHECK(launcher.at_rank(kStopped) == Means::kStop);
    CHECK(launcher.at_launcher(signal, kPlain) == (signal == SIGTERM ? Means::kUsual : Means::kKnown));
  }
}

TEST_CASE("where nobody can be told to stop, it ends the job once") {
  Notice agents;
  CHECK(agents.at_agent(kPlain) == Means::kUsual);
  CHECK(agents.at_agent(kEnding) == Means::kKnown);
  CHECK(agents.at_launcher(SIGTERM, kEnding) == Means::kKnown);
  CHECK(agents.at_launcher(SIGTERM, kEnding) == Means::kUsual);

  Notice launcher;
  CHECK(launcher.at_launcher(SIGTERM, kPlain) == Means::kUsual);
  CHECK(launcher.at_agent(kEnding) == Means::kKnown);
  CHECK(launcher.at_launcher(SIGTERM, kEnding) == Means::kUsual);
}

TEST_CASE("a job that is being ended for another reason keeps its grace period") {
  Notice notice;
  CHECK(notice.at_agent(kEnding) == Means::kKnown);
  CHECK(notice.at_rank(kEnding) == Means::kKnown);
  // No part has acted on the signal so far, so the launcher's own signal is the first interrupt.
  CHECK(notice.at_launcher(SIGTERM, kEnding) == Means::kUsual);
}

}  // namespace
}  // namespace distrun::launcher
