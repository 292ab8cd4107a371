// Exceptions in the engine's turn: lack of memory, and bugs in the engine.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "test/support/engine_ranks.h"

namespace distrun::engine {
namespace {

using test::allreduce;
using test::EngineJob;

struct Fault {
  int rank;
  Errc code;
  bool polled;  // the caller does not wait, so the engine's own thread meets the exception
};

void expect_cause(const Fault& fault, const Status& status) {
  EXPECT_EQ(status.code(), fault.code);
  EXPECT_EQ(status.info().ranks, std::vector<int>{fault.rank});
  EXPECT_EQ(status.info().host, EngineJob::host_of(fault.rank));
  EXPECT(!status.info().usable);
}

void run_with(const Fault& fault) {
  std::atomic<bool> thrown{false};
  const auto meddle = [&](int rank) {
    if (rank != fault.rank || thrown.exchange(true)) return;
    if (fault.code == Errc::kOutOfMemory) throw std::bad_alloc();
    throw std::logic_error("a contract that was broken");
  };
  EngineJob job({.ranks = 3, .backend = {.hangs = fault.rank, .meddle = meddle}, .shut_down = false});
  const std::string said =
      fault.code == Errc::kOutOfMemory
          ? "out of memory: no memory is left for distrun. Run fewer ranks on its host, or give them more memory"
          : "internal error: a bug in distrun, please report it: a contract that was broken";
  job.run([&](int rank, Engine& engine) {
    std::vector<float> memory(4, 1);
    const Submission one = allreduce("x", memory);
    const auto handles = engine.submit(std::span(&one, 1));
    EXPECT_OK(handles);
    while (fault.polled && !handles->front()->done()) std::this_thread::yield();
    EXPECT_OK(engine.wait_all(*handles, deadline_after(40)));
    // The launcher gets the failure before the other ranks do.
    const auto reported = job.channel(fault.rank).failures();
    EXPECT(reported.size() == 1 && reported.front().cause == said);
    if (rank != fault.rank) EXPECT(job.channel(rank).failures().empty());
    expect_cause(fault, handles->front()->status());
    EXPECT_EQ(engine.submit(std::span(&one, 1)).status().code(), fault.code);
    expect_cause(fault, engine.shutdown(deadline_after(40)));
  });
}

TEST_CASE("an exception on one rank, whoever drives, ends the job with its cause on all of them") {
  for (const int rank : {0, 1}) {
    for (const bool polled : {false, true}) {
      run_with({.rank = rank, .code = Errc::kOutOfMemory, .polled = polled});
      run_with({.rank = rank, .code = Errc::kInternal, .polled = polled});
    }
  }
}

TEST_CASE("an engine that can do nothing without an exception gives it to whoever waits, and ends") {
  for (const bool background_thread : {false, true}) {
    EngineJob job({.ranks = 1,
                   .background_thread = background_thread,
                   .backend = {.meddle = [](int) { throw std::bad_alloc(); }},
                   .shut_down = false});
    std::vector<float> memory(4, 1);
    auto engine = job.make(0);
    const Submission one = allreduce("x", memory);
    const auto handles = engine->submit(std::span(&one, 1));
    REQUIRE(handles.ok());
    for (int again = 0; again < 3; ++again) {
      CHECK_THROWS_AS(engine->wait_all(*handles, deadline_after(40)), std::bad_alloc);
    }
    CHECK_FALSE(handles->front()->done());
    engine.reset();
    const auto warnings = job.warnings();
    CHECK(std::any_of(warnings.begin(), warnings.end(), [](const std::string& line) {
      return line.find("while its engine was broken") != std::string::npos;
    }));
  }
}

}  // namespace
}  // namespace distrun::engine
