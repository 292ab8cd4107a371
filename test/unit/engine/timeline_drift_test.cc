// The timeline of ranks whose clocks drift. This program defines its own now(), as the simulation does.
#include <time.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include "test/support/engine_ranks.h"
#include "test/support/temporary_file.h"

namespace {

std::atomic<std::int64_t> skipped_ns{0};  // time that the test skips
thread_local double drift = 0;            // the drift of this thread's clock per skipped second

}  // namespace

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto skipped = static_cast<double>(skipped_ns.load());
  return time_point(seconds(now.tv_sec) + nanoseconds(now.tv_nsec) +
                    nanoseconds(static_cast<std::int64_t>(skipped * (1 + drift))));
}

namespace distrun::engine {
namespace {

// The time in microseconds at which this phase of the last operation ended, by rank.
std::map<int, double> last_ends(const std::string& trace, const std::string& phase) {
  std::map<int, double> ends;
  std::istringstream lines(trace);
  const auto number = [](const std::string& line, const std::string& key) {
    const std::size_t at = line.find("\"" + key + "\":");
    return at == std::string::npos ? 0.0 : std::stod(line.substr(at + key.size() + 3));
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"" + phase + "\"") == std::string::npos) continue;
    double& end = ends[static_cast<int>(number(line, "pid"))];
    end = std::max(end, number(line, "ts") + number(line, "dur"));
  }
  return ends;
}

TEST_CASE("a timeline of ten minutes stays together where a clock runs 0.1 % faster than the leader's") {
  const test::TemporaryFile file;
  // Each rank's own thread runs its engine, with the rank's clock.
  test::EngineJob job({.ranks = 2, .background_thread = false});
  const auto run = [&](int rank) {
    if (rank == 1) drift = 0.001;
    const auto engine = job.make(rank);
    EXPECT_OK(engine->start_timeline(file.path()));
    std::vector<float> memory(4, 1);
    for (int part = 0; part < 30; ++part) {
      if (rank == 0) skipped_ns += 20'000'000'000;
      for (int i = 0; i < 30; ++i) {
        const HandlePtr one = test::submit(*engine, test::allreduce("x", memory));
        EXPECT_OK(engine->wait_all(std::span(&one, 1), deadline_after(10'000)));
        EXPECT_OK(one->status());
      }
    }
    EXPECT_OK(engine->stop_timeline());
    EXPECT_OK(engine->shutdown(deadline_after(30)));
  };
  test::run_ranks(job.size(), run, {.watchdog_seconds = 10'000});
  const auto ends = last_ends(file.text(), "ALLREDUCE");
  REQUIRE(ends.size() == 2);
  // With a measurement only at the start, the difference would be 600 ms. A measurement is valid for a minute, so the
  // clocks only drift for that minute and until the next events.
  CHECK(std::abs(ends.at(0) - ends.at(1)) < 300'000);
}

}  // namespace
}  // namespace distrun::engine
