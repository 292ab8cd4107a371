// A launcher and its agents ignore SIGPIPE, so writing to a child that has ended returns an error. Their tests do the
// same.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

namespace distrun::launcher {
namespace {

class Signals : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override { ::signal(SIGPIPE, SIG_IGN); }
};
CATCH_REGISTER_LISTENER(Signals)

}  // namespace
}  // namespace distrun::launcher
