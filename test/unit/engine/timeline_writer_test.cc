// The timeline's own thread: the cost for the engine if the disk is slow, stuck or missing.
#include "runtime/engine/monitoring/timeline_writer.h"

#include <dirent.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>

#include "test/support/stuck_disk.h"
#include "test/support/temporary_file.h"
#include "test/unit/engine/json_check.h"

namespace distrun::engine {
namespace {

using test::slurp;
using test::TemporaryFile;

constexpr std::size_t kBatch = 1000;
const std::string kLongName(2000, 'x');

std::vector<TimelineEvent> batch() {
  return std::vector<TimelineEvent>(kBatch,
                                    {.start_ns = 7'000, .duration_ns = 1, .tensor = kLongName, .phase = "QUEUE"});
}

std::string replaced(const std::string& text, const std::string& part, const std::string& by) {
  std::string result;
  std::size_t from = 0;
  for (std::size_t at = 0; (at = text.find(part, from)) != std::string::npos; from = at + part.size()) {
    result.append(text, from, at - from).append(by);
  }
  return result.append(text, from);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

// How often the writers' threads in this process have gone to sleep; -1 if there is none.
long sleeps() {
  long total = -1;
  DIR* tasks = ::opendir("/proc/self/task");
  while (const dirent* task = ::readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + task->d_name;
    if (slurp(folder + "/comm") != "distrun-trace\n") continue;
    const std::string status = slurp(folder + "/status");
    const std::size_t line = status.find("\nvoluntary_ctxt_switches:");
    if (line == std::string::npos) continue;  // the thread ended after its name was read
    total = std::max(total, 0L) + std::stol(status.substr(line + 25));
  }
  ::closedir(tasks);
  return total;
}

TEST_CASE("a stuck disk holds nobody up, and what it does not take is given up at the deadline") {
  const test::StuckDisk disk;
  auto writer = TimelineWriter::create(disk.path(), {"h"}, 0);
  REQUIRE(writer.ok());
  for (int i = 0; i < 100; ++i) REQUIRE((*writer)->write(0, batch(), 0).ok());
  const TimePoint before = Clock::now();
  const Status finished = (*writer)->finish(before + std::chrono::milliseconds(100));
  CHECK(Clock::now() - before < std::chrono::seconds(5));
  REQUIRE(finished.code() == Errc::kTimeout);
  CHECK(finished.message().find(disk.path()) != std::string::npos);
}

TEST_CASE("what a slow disk has no time for is dropped and counted in the file") {
  test::StuckDisk disk;
  auto writer = TimelineWriter::create(disk.path(), {"h"}, 0);
  REQUIRE(writer.ok());
  constexpr std::size_t kBatches = 50;  // 2 MB each: together more than the queue may hold
  for (std::size_t i = 0; i < kBatches; ++i) REQUIRE((*writer)->write(0, batch(), 1000).ok());
  Status finished;
  std::thread finisher([&] { finished = (*writer)->finish(deadline_after(60)); });
  std::string text = disk.read_all();
  finisher.join();
  CHECK(finished.ok());
  // With sanitizers, reading sixty megabytes character by character takes half a minute.
  text = replaced(text, kLongName, "x");
  // In a file, the next events replace the end of the file. A pipe keeps every end.
  text = replaced(text, "\n]\n,", ",");
  CHECK(JsonCheck::valid(text));
  const std::size_t kept = count(text, "\"ph\":\"X\"");
  CHECK(kept * 2000 > TimelineWriter::kMostQueued / 2);
  CHECK(kept * 2000 <= TimelineWriter::kMostQueued);
  CHECK(count(text, "EVENTS DROPPED") == 1);
  CHECK(count(text, "\"" + std::to_string(kBatches * kBatch - kept) + " EVENTS DROPPED\"") == 1);
  CHECK(count(text, "\"ph\":\"i\",\"s\":\"g\",\"pid\":0,\"tid\":0,\"ts\":6.000") == 1);
}

TEST_CASE("the writer's thread sleeps while there is nothing to write, and goes with the file") {
  const TemporaryFile file;
  const std::string path = file.path();
  auto writer = TimelineWriter::create(path, {"h"}, 0);
  REQUIRE(writer.ok());
  REQUIRE((*writer)->write(0, batch(), 0).ok());
  while (count(slurp(path), "\"ph\":\"X\"") < kBatch) std::this_thread::yield();
  CHECK(JsonCheck::valid(slurp(path)));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has written, and goes to sleep
  const long before = sleeps();
  CHECK(before >= 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(sleeps() == before);
  CHECK((*writer)->finish(deadline_after(10)).ok());
  const TimePoint deadline = deadline_after(10);  // the kernel may still list a joined thread
  while (sleeps() >= 0 && Clock::now() < deadline) std::this_thread::yield();
  CHECK(sleeps() == -1);
}

TEST_CASE("a failure to write is told once, by the next write or by the end") {
  for (const bool writes_again : {true, false}) {
    auto writer = TimelineWriter::create("/dev/full", {}, 0);
    CHECK_FALSE(writer.ok());
    const TemporaryFile file;
    const std::string path = file.path();
    writer = TimelineWriter::create(path, {"h"}, 1000);
    REQUIRE(writer.ok());
    REQUIRE((*writer)->write(0, batch(), 0).ok());
    Status outcome;
    const TimePoint deadline = deadline_after(10);
    while (writes_again && outcome.ok() && Clock::now() < deadline) outcome = (*writer)->write(0, batch(), 0);
    const Status finished = (*writer)->finish(deadline_after(10));
    CHECK(finished.ok() == writes_again);
    CHECK((*writer)->write(0, batch(), 0).code() == Errc::kShutDown);
    if (!writes_again) outcome = finished;
    REQUIRE_FALSE(outcome.ok());
    CHECK(outcome.message().find("timeline_max_size (1000)") != std::string::npos);
  }
}

}  // namespace
}  // namespace distrun::engine
