#include "runtime/api/stop_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

namespace distrun::api {
namespace {

// Not SIGTERM, because Catch2 keeps a handler for it.
TEST_CASE("a signal asks the rank to stop, and ends a child of the rank", "[api]") {
  const int number = GENERATE(SIGUSR1, SIGUSR2);
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  std::vector<int> asked;
  auto signals = StopSignals::create(**wait_set, [&](int got) { asked.push_back(got); });
  REQUIRE(signals.ok());
  (*signals)->begin();
  StopSignals::take_over({number});

  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    [[maybe_unused]] const ssize_t n = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(3);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  REQUIRE(::kill(child, number) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == number);
  CHECK(*(*wait_set)->poll({}) == 0);
  CHECK(asked.empty());

  REQUIRE(::raise(number) == 0);
  CHECK(*(*wait_set)->poll({}) == 1);
  CHECK(asked == std::vector<int>{number});
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a signal that comes before the next session can stop waits until it can", "[api]") {
  auto wait_set = net::WaitSet::create();
  REQUIRE(wait_set.ok());
  {
    auto before = StopSignals::create(**wait_set, [](int) {});
    REQUIRE(before.ok());
    (*before)->begin();
    StopSignals::take_over({SIGUSR1});
    (*before)->outlive();
  }
  std::vector<int> asked;
  auto signals = StopSignals::create(**wait_set, [&](int number) { asked.push_back(number); });
  REQUIRE(signals.ok());
  REQUIRE(::raise(SIGUSR1) == 0);
  CHECK(*(*wait_set)->poll({}) == 0);
  (*signals)->begin();
  CHECK(*(*wait_set)->poll({}) == 1);
  CHECK(asked == std::vector<int>{SIGUSR1});
}

}  // namespace
}  // namespace distrun::api
