// The engine reads std::chrono::steady_clock where it acts (pure code takes a TimePoint). This program brings its own
// now(), which the linker finds before the standard library's shared one, so that the product needs no seam for it.
#include "test/sim/clock.h"

namespace distrun::sim {
namespace {

// Not zero, which the engine's records take for "never".
TimePoint current{std::chrono::hours(1)};

}  // namespace

void set_now(TimePoint now) { current = now; }

}  // namespace distrun::sim

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept { return distrun::sim::current; }
