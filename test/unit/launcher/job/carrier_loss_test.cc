#include "launcher/job/ranks/carrier_loss.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>

namespace distrun::launcher {
namespace {

constexpr TimePoint kStart{};
const CarrierLoss::Where kOnH1{.agent = 1, .rank = 1, .host = "h1"};
const CarrierLoss::Where kOnH2{.agent = 2, .rank = 2, .host = "h2"};

CarrierEnd by_signal(int number) { return {.name = "mpirun", .pid = 7, .wait_status = number}; }
CarrierEnd by_code(int code) { return {.name = "mpirun", .pid = 7, .wait_status = code << 8}; }
CarrierNews asked_to_end() { return {.kind = CarrierNews::kAskedToEnd}; }
CarrierNews daemon(const std::string& name) { return {.kind = CarrierNews::kDaemonEnded, .name = name, .pid = 9}; }
RankExited terminated(int rank) { return {.rank = rank, .signal = SIGTERM, .by_agent = true}; }

TEST_CASE("the end of MPI's launcher by a signal is the cause at once", "[carrier_loss]") {
  CarrierLoss loss("head");
  loss.add_news(asked_to_end(), kOnH1, kStart);
  CHECK(loss.keeps(terminated(1), kStart));
  loss.add_news(daemon("orted"), kOnH2, kStart);
  CHECK_FALSE(loss.decide(kStart));
  loss.launcher_ended(by_signal(SIGKILL), kStart);
  const auto found = loss.decide(kStart);
  REQUIRE(found);
  CHECK(found->text == "mpirun (pid 7) was killed by signal 9 (SIGKILL) on host head");
  CHECK(found->where.agent == -1);
  CHECK(found->where.host == "head");
  CHECK(loss.take().size() == 1);
}

TEST_CASE("a daemon that has gone explains the ends that MPI's launcher then makes", "[carrier_loss]") {
  CarrierLoss loss("head");
  loss.add_news(asked_to_end(), kOnH1, kStart);
  CHECK(loss.keeps(terminated(1), kStart));
  loss.add_news(daemon("orted"), kOnH2, kStart);
  SECTION("MPI's launcher has not ended yet") {}
  SECTION("it ends with a code") { loss.launcher_ended(by_code(1), kStart); }
  SECTION("wrappers end too") { loss.wrapper_lost(kOnH1, 0, kStart); }
  CHECK_FALSE(loss.decide(kStart));
  const auto found = loss.decide(kStart + CarrierLoss::kOfDaemon);
  REQUIRE(found);
  CHECK(found->text == "orted (pid 9) on host h2 has ended while rank 2 ran below it: was it killed?");
  CHECK(found->where.agent == 2);
}

TEST_CASE("a wrapper that has gone is named, unless more is known", "[carrier_loss]") {
  CarrierLoss loss("head");
  loss.wrapper_lost(kOnH2, 5, kStart);
  CHECK(loss.keeps(terminated(1), kStart));
  CHECK(loss.deadline() == kStart + CarrierLoss::kOfWrapper);
  const auto found = loss.decide(kStart + CarrierLoss::kOfWrapper);
  REQUIRE(found);
  CHECK(found->text == "distrun's wrapper (pid 5) on host h2 has ended while rank 2 ran below it: was it killed?");
}

TEST_CASE("a daemon that ends its own ranks a while before the others are ended is the cause", "[carrier_loss]") {
  using std::chrono::milliseconds;
  CarrierLoss loss("head");
  loss.add_news({.kind = CarrierNews::kAskedToEnd, .name = "orted", .pid = 9}, kOnH2, kStart);
  CHECK(loss.keeps(terminated(2), kStart));
  milliseconds later{0};
  SECTION("the others are told when it is missed") { later = milliseconds(1000); }
  SECTION("all are told together") { later = milliseconds(20); }
  loss.add_news({.kind = CarrierNews::kAskedToEnd, .name = "orted", .pid = 8}, kOnH1, kStart + later);
  CHECK(loss.keeps(terminated(1), kStart + later));
  loss.launcher_ended(by_code(205), kStart + later);
  const auto found = loss.decide(kStart + later + CarrierLoss::kOfRank);
  REQUIRE(found);
  if (later > CarrierLoss::kTogether) {
    CHECK(found->text ==
          "orted (pid 9) on host h2 ended its ranks before MPI's launcher ended the others: was it killed?");
    CHECK(found->where.agent == 2);
  } else {
    CHECK(found->text == "mpirun (pid 7) exited with code 205 on host head");
  }
}

TEST_CASE("a daemon that tells one agent to end, and kills another one before its message has left, is the cause",
          "[carrier_loss]") {
  using std::chrono::milliseconds;
  const CarrierNews asked_by_orted{.kind = CarrierNews::kAskedToEnd, .name = "orted", .pid = 9};
  const CarrierLoss::Where other{.agent = 3, .rank = 3, .host = "h2"};
  const CarrierNews guard{.kind = CarrierNews::kGuardEnded, .name = "dr-guard", .pid = 5};
  CarrierLoss loss("head");
  if (GENERATE(true, false)) {  // which message comes first
    loss.add_news(asked_by_orted, other, kStart);
    loss.add_news(guard, kOnH2, kStart + milliseconds(4));
  } else {
    loss.add_news(guard, kOnH2, kStart);
    loss.add_news(asked_by_orted, other, kStart + milliseconds(4));
  }
  loss.add_news(daemon("orted"), kOnH2, kStart + milliseconds(12));
  CHECK_FALSE(loss.decide(kStart + milliseconds(1005)));
  // MPI's launcher has missed the daemon and ends the others.
  loss.add_news({.kind = CarrierNews::kAskedToEnd, .name = "orted", .pid = 8}, kOnH1, kStart + milliseconds(1010));
  loss.add_news({.kind = CarrierNews::kDaemonEnded, .name = "orted", .pid = 8}, kOnH1, kStart + milliseconds(1020));
  const auto found = loss.decide(kStart + milliseconds(4) + CarrierLoss::kOfRank);
  REQUIRE(found);
  CHECK(found->text ==
        "orted (pid 9) on host h2 ended its ranks before MPI's launcher ended the others: was it killed?");
  CHECK(found->where.host == "h2");
}

TEST_CASE("a wrapper that has gone before MPI's launcher ends all others together is the cause", "[carrier_loss]") {
  using std::chrono::milliseconds;
  CarrierLoss loss("head");
  loss.wrapper_lost(kOnH2, 5, kStart);
  loss.add_news({.kind = CarrierNews::kAskedToEnd, .name = "orted", .pid = 9}, {.agent = 3, .rank = 3, .host = "h2"},
                kStart + milliseconds(20));
  loss.add_news({.kind = CarrierNews::kAskedToEnd, .name = "orted", .pid = 8}, kOnH1, kStart + milliseconds(30));
  const auto found = loss.decide(kStart + milliseconds(20) + CarrierLoss::kOfRank);
  REQUIRE(found);
  CHECK(found->text.starts_with("distrun's wrapper (pid 5)"));
}

TEST_CASE("a wrapper that gets SIGCONT and then ends was ended by its daemon", "[carrier_loss]") {
  using std::chrono::seconds;
  CarrierLoss loss("head");
  const CarrierNews continued{.kind = CarrierNews::kContinued, .name = "orted", .pid = 9};
  loss.add_news(continued, kOnH2, kStart);
  CHECK_FALSE(loss.deadline());  // SIGCONT alone means nothing
  SECTION("a second later: TERM and KILL left no time for a message") {
    loss.wrapper_lost(kOnH2, 5, kStart + seconds(1));
    loss.add_news({.kind = CarrierNews::kAskedToEnd, .name = "orted", .pid = 8}, kOnH1, kStart + seconds(2));
    const auto found = loss.decide(kStart + seconds(1) + CarrierLoss::kOfRank);
    REQUIRE(found);
    CHECK(found->text ==
          "orted (pid 9) on host h2 ended its ranks before MPI's launcher ended the others: was it killed?");
  }
  SECTION("long after: it has another cause") {
    loss.wrapper_lost(kOnH2, 5, kStart + seconds(10));
    const auto found = loss.decide(kStart + seconds(10) + CarrierLoss::kOfWrapper);
    REQUIRE(found);
    CHECK(found->text.starts_with("distrun's wrapper (pid 5)"));
  }
  SECTION("another wrapper: it has another cause") {
    loss.wrapper_lost(kOnH1, 5, kStart + seconds(1));
    const auto found = loss.decide(kStart + seconds(1) + CarrierLoss::kOfWrapper);
    REQUIRE(found);
    CHECK(found->text.starts_with("distrun's wrapper (pid 5)"));
  }
}

TEST_CASE("a rank's own failure before all others are told is the cause", "[carrier_loss]") {
  CarrierLoss loss("head");
  loss.add_news(asked_to_end(), kOnH2, kStart);
  CHECK(loss.keeps({.rank = 2, .exit_code = 3}, kStart));
  loss.add_news(asked_to_end(), kOnH1, kStart + std::chrono::seconds(1));
  CHECK_FALSE(loss.decide(kStart + std::chrono::seconds(3)));
  CHECK(loss.take().front().exit_code == 3);
}

TEST_CASE("ends that nothing explains are told as they are", "[carrier_loss]") {
  CarrierLoss loss("head");
  CHECK(loss.keeps(terminated(1), kStart));
  CHECK(loss.keeps({.rank = 0, .exit_code = 3}, kStart));
  CHECK(loss.take().empty());
  CHECK_FALSE(loss.decide(kStart + CarrierLoss::kOfRank));
  const auto kept = loss.take();
  REQUIRE(kept.size() == 2);
  CHECK(kept.front().rank == 0);  // it ended by itself, for instance by MPI_Abort
  CHECK(loss.take().empty());
}

TEST_CASE("a wrapper that was told to end before is no cause", "[carrier_loss]") {
  CarrierLoss loss("head");
  loss.add_news(asked_to_end(), kOnH1, kStart);
  loss.add_news({.kind = CarrierNews::kGuardEnded, .name = "dr-guard", .pid = 5}, kOnH1, kStart);
  loss.wrapper_lost(kOnH1, 0, kStart);
  loss.launcher_ended(by_code(1), kStart + CarrierLoss::kOfWrapper);
  const auto found = loss.decide(kStart + CarrierLoss::kOfRank);
  REQUIRE(found);
  CHECK(found->text == "mpirun (pid 7) exited with code 1 on host head");
}

TEST_CASE("a rank's own failure makes MPI's launcher end with a code, and is the cause", "[carrier_loss]") {
  CarrierLoss loss("head");
  loss.add_news(asked_to_end(), kOnH1, kStart);
  CHECK(loss.keeps({.rank = 0, .exit_code = 3}, kStart));
  loss.launcher_ended(by_code(3), kStart);
  CHECK_FALSE(loss.decide(kStart + CarrierLoss::kOfRank));
  CHECK(loss.take().size() == 1);
}

TEST_CASE("MPI's launcher may end the ranks itself", "[carrier_loss]") {
  CarrierLoss loss("head");
  loss.add_news(asked_to_end(), kOnH1, kStart);
  CHECK(loss.keeps(terminated(1), kStart));
  loss.launcher_ended(by_code(1), kStart);
  const auto found = loss.decide(kStart + CarrierLoss::kOfRank);
  REQUIRE(found);
  CHECK(found->text == "mpirun (pid 7) exited with code 1 on host head");
}

TEST_CASE("a rank's end with nothing else is judged at once", "[carrier_loss]") {
  CarrierLoss loss("head");
  CHECK_FALSE(loss.keeps({.rank = 0, .exit_code = 3}, kStart));
  CHECK_FALSE(loss.keeps({.rank = 0}, kStart));
  CHECK_FALSE(loss.deadline());
}

}  // namespace
}  // namespace distrun::launcher
