#include "runtime/engine/monitoring/timeline.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>

#include "test/support/temporary_file.h"
#include "test/unit/engine/json_check.h"

namespace distrun::engine {
namespace {

using test::slurp;
using test::TemporaryFile;

TEST_CASE("a link that others may have put in the timeline's place is refused") {
  std::string folder = "/tmp/distrun-test-timeline-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  REQUIRE(::chmod(folder.c_str(), 0777) == 0);
  const TemporaryFile target;
  const std::string link = folder + "/t.json";
  REQUIRE(::symlink(target.path().c_str(), link.c_str()) == 0);
  auto refused = TimelineFile::create(link, {"h"}, 0);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().message().find("timeline: '" + link + "' is a link") == 0);
  REQUIRE(::chmod(folder.c_str(), 0755) == 0);
  CHECK(TimelineFile::create(link, {"h"}, 0).ok());
  std::filesystem::remove_all(folder);
}

TEST_CASE("the file is JSON after every write, whatever the names are") {
  const TemporaryFile temporary;
  auto file = TimelineFile::create(temporary.path(), {"node0", "a \"host\""}, 0);
  REQUIRE(file.ok());
  CHECK(JsonCheck::valid(slurp(temporary.path())));
  const std::string names[] = {"plain", "quote \" backslash \\", "new\nline", "caf\xC3\xA9", "\xFF\xFE broken", ""};
  for (const std::string& name : names) {
    REQUIRE((*file)->write(1, {{.start_ns = 1500, .duration_ns = 250, .tensor = name, .phase = "QUEUE"}}, 500).ok());
    CHECK(JsonCheck::valid(slurp(temporary.path())));
  }
  const std::string text = slurp(temporary.path());
  CHECK(text.find("\"ts\":1.000,\"dur\":0.250") != std::string::npos);  // on the leader's clock
  CHECK(text.find("rank 1 (a \\\"host\\\")") != std::string::npos);
  CHECK(text.find("caf\xC3\xA9") != std::string::npos);
  CHECK(text.find("\\u00ff\\u00fe broken") != std::string::npos);
}

TEST_CASE("a timeline that cannot be written says why") {
  const auto file = TimelineFile::create("/does/not/exist.json", {"h"}, 0);
  REQUIRE_FALSE(file.ok());
  CHECK(file.status().message().find("'/does/not/exist.json'") != std::string::npos);
}

TEST_CASE("the file ends at its greatest size, and says so and how to have more") {
  const TemporaryFile temporary;
  constexpr std::uint64_t kLimit = 5000;
  auto file = TimelineFile::create(temporary.path(), {"h"}, kLimit);
  REQUIRE(file.ok());
  Status written;
  std::int64_t ns = 0;
  while (written.ok() && ns < 1'000'000) {
    ns += 1000;
    // A part of the batch may fit.
    written = (*file)->write(0, {20, {.start_ns = ns, .duration_ns = 1, .tensor = "x", .phase = "QUEUE"}}, 500);
  }
  REQUIRE_FALSE(written.ok());
  CHECK(written.message().find(temporary.path() + "' has reached timeline_max_size (5000)") != std::string::npos);
  const std::string text = slurp(temporary.path());
  CHECK(JsonCheck::valid(text));
  CHECK(text.size() > kLimit);  // it includes the mark
  CHECK(text.size() < kLimit + 500);
  const std::size_t end = text.find("\"THE TIMELINE ENDS HERE\",\"ph\":\"i\"");
  REQUIRE(end != std::string::npos);
  CHECK(text.find("--timeline-max-size", end) != std::string::npos);
  CHECK(text.find("\"ph\":\"X\"", end) == std::string::npos);
}

TEST_CASE("every rank has lanes of its own; only what is beyond 4096 tensors of one shares a lane") {
  const TemporaryFile temporary;
  auto file = TimelineFile::create(temporary.path(), {"h", "h"}, 0);
  REQUIRE(file.ok());
  const auto write = [&](int rank, const std::string& name) {
    REQUIRE((*file)->write(rank, {{.start_ns = 0, .duration_ns = 1, .tensor = name, .phase = "QUEUE"}}, 0).ok());
  };
  std::vector<TimelineEvent> many;
  for (int i = 0; i < 4096; ++i) {
    many.push_back({.start_ns = 0, .duration_ns = 1, .tensor = "t" + std::to_string(i), .phase = "QUEUE"});
  }
  REQUIRE((*file)->write(0, many, 0).ok());
  write(0, "one more");
  write(0, "and another");
  write(1, "first of rank 1");
  const std::string text = slurp(temporary.path());
  const auto named = [&](const std::string& where, const std::string& name) {
    return text.find(where + ",\"args\":{\"name\":\"" + name + "\"}") != std::string::npos;
  };
  CHECK(named("\"pid\":0,\"tid\":4095", "t4095"));
  CHECK(named("\"pid\":1,\"tid\":0", "first of rank 1"));
  CHECK(text.find("\"name\":\"one more\"") == std::string::npos);
  CHECK(text.find("\"tid\":4096,\"ts\":0.000,\"dur\":0.001,\"args\":{\"tensor\":\"and another\"}") !=
        std::string::npos);
}

TEST_CASE("a file on a full disk keeps what it has, as JSON") {
  const TemporaryFile temporary;
  auto file = TimelineFile::create(temporary.path(), {"h"}, 0);
  REQUIRE(file.ok());
  const std::vector<TimelineEvent> events(10, {.start_ns = 1, .duration_ns = 1, .tensor = "x", .phase = "QUEUE"});
  REQUIRE((*file)->write(0, events, 0).ok());
  const std::string before = slurp(temporary.path());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit all{};
  ::getrlimit(RLIMIT_FSIZE, &all);
  rlimit full = all;
  full.rlim_cur = before.size() + 100;
  ::setrlimit(RLIMIT_FSIZE, &full);
  const Status written = (*file)->write(0, events, 0);
  ::setrlimit(RLIMIT_FSIZE, &all);
  REQUIRE_FALSE(written.ok());
  CHECK(written.message().find("cannot write '" + temporary.path() + "'") != std::string::npos);
  CHECK(JsonCheck::valid(slurp(temporary.path())));
  CHECK(slurp(temporary.path()) == before);
}

TEST_CASE("the checker itself refuses what is not JSON") {
  for (const char* text : {"", "[", "[1,]", "{\"a\" 1}", "[1] x", "\"open", "[1 2]"})
    CHECK_FALSE(JsonCheck::valid(text));
  CHECK(JsonCheck::valid(" [1, {\"a\": [\"b\", -2.5]}, {}, []] "));
}

TEST_CASE("events are shipped in bounded batches, a second after the first at the latest") {
  TimelineRecorder recorder;
  CHECK_FALSE(recorder.due());
  const Tensor tensor({.name = "x"}, {}, TimePoint{});
  const TimePoint now = TimePoint{} + std::chrono::seconds(5);
  recorder.ran(tensor, now, now, now);
  CHECK(*recorder.due() == now + TimelineRecorder::kTimeLimit);
  for (int i = 0; i < 1000; ++i) recorder.ran(tensor, now, now, now);
  CHECK(*recorder.due() == TimePoint::min());
  std::size_t total = 0;
  while (!recorder.empty()) {
    const auto batch = recorder.take();
    CHECK(batch.size() <= TimelineRecorder::kBatch);
    total += batch.size();
  }
  CHECK(total == 3003);
}

TEST_CASE("the shortest round trip measures the clocks best") {
  ClockOffset offset;
  CHECK(offset.measured(100, 5000, 300));  // 200 ns trip: off by up to 100
  CHECK(offset.value() == 4800);
  CHECK(offset.measured(1000, 5805, 1010));
  CHECK(offset.value() == 4800);
  CHECK(offset.measured(2000, 9000, 4000));  // less exact: ignored
  CHECK(offset.value() == 4800);
  CHECK(offset.measured(5000, 9805, 5010));
  CHECK_FALSE(offset.outdated(1'000'000'000'000));  // a measurement is in progress
  CHECK_FALSE(offset.measured(6000, 9805, 6010));   // enough rounds
  CHECK_FALSE(offset.outdated(6010 + ClockOffset::kGoodForNs));
  CHECK(offset.outdated(6011 + ClockOffset::kGoodForNs));
  offset.measure_again();
  for (int round = 1; round < ClockOffset::kRounds; ++round) {
    CHECK(offset.measured(100, 5000, 700));
    CHECK(offset.value() == 4800);  // however long the first trips are
  }
  CHECK_FALSE(offset.measured(1000, 5700, 1010));
  CHECK(offset.value() == 4695);
}

}  // namespace
}  // namespace distrun::engine
