#include "launcher/report/job_logs.h"

#include <catch2/catch_test_macros.hpp>

#include "launcher/spawn/poller.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

TEST_CASE("without a folder nothing is kept and nothing is to be waited for") {
  auto logs = JobLogs::create("", {"a"});
  REQUIRE(logs.ok());
  logs->begin();
  logs->write(0, 0, "text");
  logs->add({}, {.stream = 0, .tag = "[0] ", .piece = {.text = "line\n"}});
  logs->tick(Clock::now());
  CHECK_FALSE(logs->on());
  CHECK(logs->state().closed);
  CHECK(logs->state().backlog == 0);
  CHECK_FALSE(logs->failed());
  CHECK_FALSE(logs->deadline());
}

TEST_CASE("each rank has files, and lines of several hosts are put in order") {
  const test::Sysroot folder;
  auto logs = JobLogs::create(folder.path(), {"a", "b"});
  REQUIRE(logs.ok());
  logs->begin();
  logs->write(1, 1, "bytes");
  const TimePoint now = Clock::now();
  logs->add(now, {.stream = 2, .tag = "[1] ", .piece = {.text = "second\n"}});
  logs->tick(now);
  CHECK(logs->deadline());  // the other host may have written an earlier line
  logs->add(now - std::chrono::milliseconds(1), {.stream = 0, .tag = "[0] ", .piece = {.text = "first\n"}});
  logs->flush(now);
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  Poller poller;
  while (logs->state().backlog != 0 && Clock::now() < limit) {
    poller.clear();
    logs->finish();
    logs->watch(poller);
    REQUIRE(poller.wait(limit).ok());
    logs->look();
  }
  CHECK(logs->state().backlog == 0);
  CHECK(logs->state().taken > 0);
  CHECK(folder.read("rank.1.err") == "bytes");
  CHECK(folder.read("merged.log") == "[0] first\n[1] second\n");
}

}  // namespace
}  // namespace distrun::launcher
