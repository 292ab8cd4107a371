#include "runtime/base/thread.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun {
namespace {

bool takes_usr2() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, SIGUSR2) == 0;
}

// As if the limit of threads were reached when it is started.
struct NoThread {
  NoThread() = default;
  NoThread(NoThread&&) { throw std::system_error(EAGAIN, std::generic_category()); }
  void operator()() const {}
};

TEST_CASE("a thread of ours takes no signals, who starts it does", "[base]") {
  bool taken = true;
  auto thread = named_thread("a name above 15 characters", [&] { taken = takes_usr2(); });
  REQUIRE(thread.ok());
  thread->join();
  CHECK_FALSE(taken);
  CHECK(takes_usr2());
}

TEST_CASE("no room for one more thread is an error that names the limit, and signals are taken as before", "[base]") {
  const auto thread = named_thread<NoThread>("worker", {});
  REQUIRE_FALSE(thread.ok());
  CHECK(thread.status().code() == Errc::kSystem);
  CHECK(thread.status().message().find("ulimit -u") != std::string::npos);
  CHECK(takes_usr2());
}

}  // namespace
}  // namespace distrun
