#include "runtime/base/system/fork_guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

namespace distrun {
namespace {

// Runs `body` in a forked child and returns its answer.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST_CASE("a child has no registered descriptor, the parent keeps it", "[base]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const GuardedFd read_end{Fd(ends[0])};
  const Fd write_end(ends[1]);
  CHECK(in_child([&] { return is_open(read_end.get()) ? 1 : 2; }) == 2);
  CHECK(in_child([&] { return is_open(write_end.get()) ? 1 : 2; }) == 1);
  CHECK(is_open(read_end.get()));
}

TEST_CASE("a descriptor that was given up or closed is not closed in a child", "[base]") {
  GuardedFd guarded{Fd(::open("/dev/null", O_RDONLY))};
  const Fd taken = guarded.release();
  CHECK(in_child([&] { return is_open(taken.get()) ? 1 : 2; }) == 1);
}

TEST_CASE("a child knows that it is one", "[base]") {
  arm_fork_guard();
  CHECK_FALSE(in_forked_child());
  CHECK(in_child([] { return in_forked_child() ? 7 : 1; }) == 7);
  CHECK(in_child([] { return in_child([] { return in_forked_child() ? 7 : 1; }); }) == 7);
}

}  // namespace
}  // namespace distrun
