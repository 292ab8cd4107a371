#include "runtime/base/thread.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace distrun {
namespace {

bool takes(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 0;
}

bool takes_faults() {
  const auto faults = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  return std::all_of(faults.begin(), faults.end(), takes);
}

// Fails as if the limit of threads were reached when the thread starts.
struct NoThread {
  NoThread() = default;
  NoThread(NoThread&&) { throw std::system_error(EAGAIN, std::generic_category()); }
  void operator()() const {}
};

TEST_CASE("a thread of ours takes no signals but those of its own faults, who starts it does", "[base]") {
  bool taken = true;
  bool faults = false;
  auto thread = named_thread("a name above 15 characters", [&] {
    taken = takes(SIGUSR2);
    faults = takes_faults();
  });
  REQUIRE(thread.ok());
  thread->join();
  CHECK_FALSE(taken);
  CHECK(faults);
  CHECK(takes(SIGUSR2));
}

TEST_CASE("no room for one more thread is an error that names the limit, and signals are taken as before", "[base]") {
  const auto thread = named_thread<NoThread>("worker", {});
  REQUIRE_FALSE(thread.ok());
  CHECK(thread.status().code() == Errc::kSystem);
  CHECK(thread.status().message().find("ulimit -u") != std::string::npos);
  CHECK(takes(SIGUSR2));
}

}  // namespace
}  // namespace distrun
