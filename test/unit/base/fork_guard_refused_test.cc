// A kernel without MADV_WIPEONFORK. It is a separate program, because a process arms the guard only once.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "runtime/base/system/fork_guard.h"

namespace distrun {
namespace {

TEST_CASE("a child knows that it is one where the kernel wipes no page for it", "[base]") {
  arm_fork_guard([](void*, std::size_t, int) { return -1; });
  CHECK_FALSE(in_forked_child());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(in_forked_child() ? 7 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  CHECK_FALSE(in_forked_child());
}

}  // namespace
}  // namespace distrun
