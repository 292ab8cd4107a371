// A process that is stopped and continued: Ctrl-Z, or a batch system's suspend.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include "test/support/engine_ranks.h"

namespace distrun::test {
namespace {

constexpr double kLimit = 3;
constexpr std::chrono::seconds kStop{5};

void a_job_that_is_stopped(bool then_comes) {
  EngineJob job({.ranks = 2, .settings = {.stall_warning_time = 0, .stall_shutdown_time = kLimit}, .shut_down = false});
  job.run([&](int rank, engine::Engine& engine) {
    std::vector<float> memory(4);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ::kill(::getpid(), SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    const auto handle = submit(engine, allreduce(rank == 0 || then_comes ? "x" : "other", memory));
    const TimePoint deadline = deadline_after(40);
    Status waited;
    do {  // continuing interrupts blocking calls
      waited = engine.wait_all(std::span(&handle, 1), deadline);
    } while (waited.code() == Errc::kInterrupted);
    EXPECT_OK(waited);
    EXPECT_EQ(handle->status().code(), then_comes ? Errc::kOk : Errc::kTimeout);
  });
}

int exit_status_of(bool then_comes) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      a_job_that_is_stopped(then_comes);
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  std::this_thread::sleep_for(kStop);
  REQUIRE(::kill(child, SIGCONT) == 0);
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("a job that is stopped for longer than stall_shutdown_time goes on") { CHECK(exit_status_of(true) == 0); }

TEST_CASE("a rank that does not come when the job goes on has its limit all the same") {
  CHECK(exit_status_of(false) == 0);
}

}  // namespace
}  // namespace distrun::test
