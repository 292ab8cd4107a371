#include "runtime/engine/launcher_link.h"

#include <catch2/catch_test_macros.hpp>

#include "test/support/fake_job_channel.h"

namespace distrun::engine {
namespace {

TEST_CASE("what the launcher says is handed on until it is gone, which is said once") {
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  test::FakeJobChannel channel;
  LauncherLink link(&channel, **wait_set, nullptr);
  std::vector<int> ranks;
  int ends = 0;
  REQUIRE(link.watch([&](const Result<std::vector<net::JobEvent>>& events) {
                if (!events.ok()) ++ends;
                for (std::size_t i = 0; events.ok() && i < events->size(); ++i) ranks.push_back((*events)[i].rank);
              })
              .ok());
  channel.push({.rank = 3});
  CHECK((*wait_set)->poll(TimePoint::min()).ok());
  CHECK(ranks == std::vector{3});
  channel.hang_up();
  for (int i = 0; i < 3; ++i) CHECK((*wait_set)->poll(TimePoint::min()).ok());
  CHECK(ends == 1);
}

TEST_CASE("the launcher is not told what it knows") {
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  test::FakeJobChannel channel;
  LauncherLink link(&channel, **wait_set, nullptr);
  link.report_end(Status(ErrorInfo{.code = Errc::kRankLost, .message = "died", .ranks = {1}}));
  link.report_end(Status(ErrorInfo{.code = Errc::kTimeout, .message = "nobody"}));
  CHECK(channel.stalled().empty());
  CHECK(channel.failures_of_others().empty());
  link.report_end(Status(ErrorInfo{.code = Errc::kTimeout, .message = "late", .tensor = "grad", .ranks = {2}}));
  CHECK(channel.stalled() == std::vector{2});
  link.report_end(Status(ErrorInfo{.code = Errc::kRankLeft, .message = "left", .tensor = "needed", .ranks = {1}}));
  link.report_failure("out of memory", "big");
  const std::vector<net::RankFailure> others = channel.failures_of_others();
  REQUIRE(others.size() == 2);
  CHECK((others[0].cause == "late" && others[0].tensor == "grad"));
  CHECK((others[1].cause == "left" && others[1].tensor == "needed"));
  REQUIRE(channel.failures().size() == 1);
  CHECK((channel.failures()[0].cause == "out of memory" && channel.failures()[0].tensor == "big"));
  link.report_loss(Status(ErrorInfo{.code = Errc::kRankLost, .message = "died", .ranks = {1}}), 0, false);
  link.report_loss(Status(ErrorInfo{.code = Errc::kRankLost, .message = "cut off", .ranks = {0}}), 0, false);
  link.report_loss(Status(ErrorInfo{.code = Errc::kAborted, .message = "cut off", .ranks = {2}}), 0, false);
  link.report_loss(Status(ErrorInfo{.code = Errc::kRankLost, .message = "the launcher is gone"}), 0, false);
  CHECK(channel.lost() == std::vector{1, 2});
  link.report_stop("SIGTERM");
  CHECK(channel.stops() == std::vector<std::string>{"SIGTERM"});
}

TEST_CASE("the launcher hears how the connection to a missed rank ended, and whether this rank saw it itself") {
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  test::FakeJobChannel channel;
  LauncherLink link(&channel, **wait_set, nullptr);
  const Status silent(ErrorInfo{.code = Errc::kRankLost,
                                .message = "rank 1 was lost",
                                .tensor = "grad",
                                .ranks = {1},
                                .cause = "its tcp connection ended",
                                .link = LinkEnd::kSilent});
  link.report_loss(silent, 1, false);  // this rank's own failure, which it reports as its own
  link.report_loss(silent, 0, false);
  link.report_loss(silent, 0, true);
  link.report_operation({Errc::kSystem, "gloo: connection closed by peer"});
  link.report_no_progress("allreduce 'x'", "x");
  const auto losses = channel.losses();
  REQUIRE(losses.size() == 3);
  CHECK(losses[0].first.ranks == std::vector{1});
  CHECK(losses[0].first.link == LinkEnd::kSilent);
  CHECK_FALSE(losses[0].first.by_other);
  CHECK(losses[0].second.cause == "its tcp connection ended");
  CHECK(losses[0].second.tensor == "grad");
  CHECK(losses[1].first.by_other);
  CHECK(losses[2].first.ranks.empty());
  CHECK(losses[2].second.cause == "gloo: connection closed by peer");
  link.report_loss(silent, 1, true);  // the other ranks have given it up
  CHECK(channel.losses().size() == 4);
  REQUIRE(channel.stuck().size() == 1);
  CHECK(channel.stuck()[0].cause == "allreduce 'x'");
  CHECK(channel.stuck()[0].tensor == "x");
}

TEST_CASE("the launcher hears whether a stall is a deadlock") {
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  test::FakeJobChannel channel;
  LauncherLink link(&channel, **wait_set, nullptr);
  const Status stall(ErrorInfo{.code = Errc::kTimeout, .message = "all wait", .ranks = {0, 1}});
  link.report_end(stall, true);
  CHECK(channel.reported_deadlock());
  link.report_end(stall);
  CHECK_FALSE(channel.reported_deadlock());
}

TEST_CASE("without a launcher there is nobody to tell") {
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  LauncherLink link(nullptr, **wait_set, nullptr);
  CHECK(link.watch([](const auto&) {}).ok());
  link.report_failure("x", "");
  link.report_stop("x");
  link.report_operation({Errc::kSystem, "x"});
  link.report_no_progress("x", "");
  link.report_end(Status(ErrorInfo{.code = Errc::kTimeout, .ranks = {2}}));
}

}  // namespace
}  // namespace distrun::engine
