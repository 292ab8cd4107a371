// The timeline of a job: all ranks write to one file, and a slow disk does not affect other ranks.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "test/support/engine_ranks.h"
#include "test/support/stuck_disk.h"
#include "test/support/temporary_file.h"
#include "test/support/text.h"
#include "test/unit/engine/json_check.h"

namespace distrun::engine {
namespace {

using test::EngineJob;

using test::has;

Status allreduce(Engine& engine, const std::string& name) {
  std::vector<float> memory(4, 1);
  const Submission one{.name = name, .shape = {4}, .input = memory.data(), .output = memory.data()};
  const auto handles = engine.submit(std::span(&one, 1));
  if (!handles.ok()) return handles.status();
  EXPECT_OK(engine.wait_all(*handles, deadline_after(40)));
  return handles->front()->status();
}

// Whether `mine` is true on at least one rank.
bool any(Engine& engine, bool mine) {
  std::vector<float> memory(1, mine ? 1 : 0);
  const Submission one{.name = "any", .shape = {1}, .input = memory.data(), .output = memory.data()};
  const auto handles = engine.submit(std::span(&one, 1));
  EXPECT_OK(handles.status());
  EXPECT_OK(engine.wait_all(*handles, deadline_after(40)));
  EXPECT_OK(handles->front()->status());
  return memory.front() > 0;
}

class Trace : public test::TemporaryFile {
 public:
  // Counts phases, ranks and operations together.
  [[nodiscard]] int events() const {
    const std::string all = text();
    int events = 0;
    for (std::size_t at = 0; (at = all.find("\"ph\":\"X\"", at)) != std::string::npos; ++at) ++events;
    return events;
  }
};

// The bytes that a rank sends for 2000 operations. Their events would have 200 KB.
std::size_t bytes_of_run(EngineJob& job, int rank, Engine& engine) {
  EXPECT_OK(allreduce(engine, "x"));  // first, read everything that is in the log
  const std::size_t before = job.control().bytes_from(rank);
  for (int i = 0; i < 2000; ++i) EXPECT_OK(allreduce(engine, "x"));
  return job.control().bytes_from(rank) - before;
}

void expect_no_events(std::size_t bytes, std::size_t without) {
  if (bytes > without + 50'000) EXPECT_OK(Status(Errc::kInternal, "this rank still sends events"));
}

TEST_CASE("the timeline has all ranks, all phases, and can be started and stopped while the job runs") {
  const Trace file;
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    EXPECT_OK(allreduce(engine, "before"));
    for (int round = 0; round < 2; ++round) {
      EXPECT_OK(engine.start_timeline(file.path()));
      for (int i = 0; i < 5; ++i) EXPECT_OK(allreduce(engine, "during"));
      EXPECT_OK(engine.stop_timeline());
      if (rank == 0) EXPECT_EQ(file.events(), 3 * 3 * 5);  // complete; the second file replaced the first
      EXPECT_OK(allreduce(engine, "after"));
    }
  });
  const std::string text = file.text();
  CHECK(JsonCheck::valid(text));
  for (const char* part : {"rank 2 (node1)", "NEGOTIATE", "QUEUE", "ALLREDUCE", "during"}) CHECK(has(text, part));
  CHECK_FALSE(has(text, "before"));
  CHECK_FALSE(has(text, "after"));
  CHECK(file.events() == 3 * 3 * 5);
}

TEST_CASE("a timeline that is started while one is on ends that one, and so does the end of the job") {
  const Trace first;
  const Trace second;
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    for (const Trace* file : {&first, &second, &second}) {
      EXPECT_OK(engine.start_timeline(file->path()));
      if (rank == 0 && file == &second) EXPECT_EQ(first.events(), 3 * 3 * 5);
      for (int i = 0; i < 5; ++i) EXPECT_OK(allreduce(engine, "x"));
    }
    EXPECT_OK(engine.shutdown(deadline_after(30)));
    EXPECT_EQ(engine.start_timeline(second.path()).code(), Errc::kShutDown);  // the file stays as it is
  });
  for (const Trace* file : {&first, &second}) {
    CHECK(JsonCheck::valid(file->text()));
    CHECK(file->events() == 3 * 3 * 5);
  }
}

TEST_CASE("a timeline that cannot be written is an error on every rank, and the job goes on") {
  EngineJob job({.ranks = 3});
  job.run([&](int, Engine& engine) {
    EXPECT_EQ(engine.start_timeline(std::string(4001, 'x')).message(),
              "the path of the timeline has 4001 bytes, and at most 4000 are possible. Use a shorter one");
    const Status started = engine.start_timeline("/does/not/exist.json");
    EXPECT_EQ(started.code(), Errc::kSystem);
    EXPECT_OK(has(started.message(), "/does/not/exist.json") ? Status() : started);
    EXPECT_OK(allreduce(engine, "goes on"));
    EXPECT_OK(engine.stop_timeline());
  });
}

TEST_CASE("after a second start that fails in the place of the first, nobody records any more") {
  char folder[] = "/tmp/distrun-test-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/t.json";
  EngineJob job({.ranks = 3});
  job.run([&](int rank, Engine& engine) {
    const std::size_t without = bytes_of_run(job, rank, engine);
    EXPECT_OK(engine.start_timeline(path));
    EXPECT_OK(allreduce(engine, "x"));
    if (rank == 0) {
      ::unlink(path.c_str());
      ::mkdir(path.c_str(), 0700);
    }
    EXPECT_EQ(engine.start_timeline(path).code(), Errc::kSystem);
    bytes_of_run(job, rank, engine);  // rank 0 notices the error with the first events that it cannot write
    expect_no_events(bytes_of_run(job, rank, engine), without);
  });
  CHECK(job.warnings().empty());
  ::rmdir(path.c_str());
  ::rmdir(folder);
}

TEST_CASE("a job with a stuck disk under its timeline goes on and ends") {
  const test::StuckDisk disk;
  EngineJob job({.ranks = 3});
  job.run([&](int, Engine& engine) {
    EXPECT_OK(engine.start_timeline(disk.path()));
    for (int i = 0; i < 1000; ++i) EXPECT_OK(allreduce(engine, "goes on"));
    const TimePoint before = Clock::now();
    EXPECT_OK(engine.shutdown(deadline_after(30)));
    if (Clock::now() - before > std::chrono::seconds(10)) EXPECT_OK(Status(Errc::kTimeout, "the end took too long"));
  });
  const auto warnings = job.warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings.front(), "'" + disk.path() + "' is not complete"));
}

TEST_CASE("a timeline ends at its greatest size: the file says so, the user hears of it, the ranks stop recording") {
  const Trace file;
  const Trace other;
  EngineJob job({.ranks = 3, .settings = {.timeline_max_size = 100'000}});
  job.run([&](int rank, Engine& engine) {
    const std::size_t without = bytes_of_run(job, rank, engine);
    EXPECT_OK(engine.start_timeline(file.path()));
    while (any(engine, rank == 0 && job.warnings().empty())) {
    }
    expect_no_events(bytes_of_run(job, rank, engine), without);
    EXPECT_OK(engine.stop_timeline());
    EXPECT_OK(engine.start_timeline(other.path()));
    for (int i = 0; i < 5; ++i) EXPECT_OK(allreduce(engine, "x"));
  });
  CHECK(JsonCheck::valid(file.text()));
  CHECK(file.text().size() < 100'000 + 500);
  CHECK(has(file.text(), "THE TIMELINE ENDS HERE"));
  CHECK(other.events() == 3 * 3 * 5);
  const auto warnings = job.warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings.front(), "has reached timeline_max_size (100000). For another limit use --timeline-max-size"));
}

}  // namespace
}  // namespace distrun::engine
