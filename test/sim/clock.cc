// The engine reads std::chrono::steady_clock where it acts (pure code takes a TimePoint). This program defines its own
// now(). The linker finds it before the one in the shared standard library, so the product needs no hook for tests.
#include "test/sim/clock.h"

namespace distrun::sim {
namespace {

// Not zero, because the engine's records use zero for "never".
TimePoint current{std::chrono::hours(1)};

}  // namespace

void set_now(TimePoint now) { current = now; }

}  // namespace distrun::sim

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept { return distrun::sim::current; }
