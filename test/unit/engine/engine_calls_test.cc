// Calls that ranks make together, in whole engines: beside a shutdown.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <thread>

#include "test/support/engine_ranks.h"

namespace distrun::engine {
namespace {

using test::EngineJob;

TEST_CASE("a call that another thread's shutdown overtakes ends") {
  // So long that the shutdown falls between the look whether the rank may still call, and the call.
  std::vector<int> ranks(2'000'000);
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const int milliseconds : {0, 5, 10, 20, 40}) {
    EngineJob job({.ranks = 1, .shut_down = false});
    const auto engine = job.make(0);
    std::atomic<bool> calls{false};
    Status called;
    std::jthread caller([&] {
      calls.store(true);
      called = engine->add_process_set(ranks, false, deadline_after(20)).status();
    });
    while (!calls.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    CHECK(engine->shutdown(deadline_after(40)).ok());
    caller.join();
    // Where it was not overtaken it is refused: there are no such ranks.
    const bool ended = called.code() == Errc::kShutDown || called.code() == Errc::kInvalidArgument;
    CHECK(ended);
  }
}

}  // namespace
}  // namespace distrun::engine
