#include "launcher/agent/lease/guard_watch.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Both clocks, each some time after its own start.
TimePoint steady_at(int ms) { return TimePoint(seconds(100) + milliseconds(ms)); }
BootTime boot_at(int ms) { return std::chrono::hours(2) + milliseconds(ms); }

struct Guarded {
  GuardWatch watch;
  std::optional<BootTime> lease;
  GuardWatch::Actions at(int ms) { return watch.next(steady_at(ms), boot_at(ms), lease); }
};

bool none(const GuardWatch::Actions& actions) { return !actions.end_ranks && !actions.kill_agent; }

TEST_CASE("a guard does nothing while the lease of its agent runs") {
  Guarded guarded{.watch = {}, .lease = boot_at(30'000)};
  CHECK(none(guarded.at(0)));
  CHECK_FALSE(guarded.watch.deadline());
  CHECK(none(guarded.at(29'999)));
  guarded.lease = boot_at(60'000);
  CHECK(none(guarded.at(59'999)));
}

TEST_CASE("an agent that runs has a moment to end its ranks, and to say so") {
  Guarded guarded{.watch = {}, .lease = boot_at(30'000)};
  CHECK(none(guarded.at(30'100)));
  const auto first = guarded.at(30'200);
  CHECK((first.end_ranks && !first.kill_agent));
  CHECK(guarded.watch.deadline() == steady_at(30'250));
  CHECK(guarded.watch.lease_over());
  CHECK_FALSE(guarded.at(32'199).kill_agent);
  const auto last = guarded.at(32'200);
  CHECK((last.end_ranks && last.kill_agent));
  CHECK_FALSE(guarded.at(32'250).kill_agent);
}

TEST_CASE("a stopped agent is ended with its ranks when its lease is over, and not before") {
  Guarded guarded{.watch = {}, .lease = boot_at(30'000)};
  guarded.watch.agent_stopped(steady_at(1000));
  CHECK(none(guarded.at(29'000)));
  const auto first = guarded.at(30'200);
  CHECK((first.end_ranks && !first.kill_agent));
  CHECK(guarded.at(30'400).kill_agent);
}

TEST_CASE("the time for which the guard was stopped or its machine suspended counts for the lease") {
  Guarded guarded{.watch = {}, .lease = boot_at(30'000)};
  CHECK(none(guarded.at(0)));
  CHECK(guarded.watch.next(steady_at(50), boot_at(3'600'000), guarded.lease).end_ranks);
}

TEST_CASE("a stopped agent without a lease is ended after a while, the guard's own stop apart") {
  Guarded guarded{};
  guarded.watch.agent_stopped(steady_at(0));
  CHECK(none(guarded.at(0)));
  CHECK(guarded.watch.deadline() == steady_at(15'000));
  CHECK(none(guarded.at(100'000)));
  CHECK(guarded.watch.deadline() == steady_at(115'000));
  CHECK(guarded.at(115'000).kill_agent);
  CHECK_FALSE(guarded.watch.lease_over());
  Guarded goes_on{};
  goes_on.watch.agent_stopped(steady_at(0));
  goes_on.at(0);
  goes_on.watch.agent_runs();
  CHECK(none(goes_on.at(14'000)));
  CHECK_FALSE(goes_on.watch.deadline());
}

TEST_CASE("an agent whose head is gone has two seconds") {
  Guarded guarded{.watch = {}, .lease = boot_at(30'000)};
  guarded.watch.head_gone(steady_at(1000));
  guarded.watch.head_gone(steady_at(2500));
  CHECK(none(guarded.at(2999)));
  CHECK(guarded.at(3000).kill_agent);
  CHECK_FALSE(guarded.watch.deadline());
}

}  // namespace
}  // namespace distrun::launcher
