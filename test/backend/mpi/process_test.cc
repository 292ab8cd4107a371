// This process as a task of MPI, with a fake MPI that the test controls (fake_mpi.c).
#include "runtime/backend/mpi/library/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "runtime/backend/plugin/host_group.h"

extern "C" {
extern int fake_mpi_level;
extern int fake_mpi_inits;
extern int fake_mpi_finalizes;
}

namespace distrun::backend::mpi_plugin {
namespace {

const Environment kTask = {{"OMPI_COMM_WORLD_SIZE", "1"}, {"DISTRUN_RANK", "0"}};

int finalizes_wanted = 0;

// Call this before enter(), whose exit handler then runs earlier.
void want_finalizes_at_exit(int count) {
  static const int registered = std::atexit([] {
    if (fake_mpi_finalizes != finalizes_wanted) std::_Exit(EXIT_FAILURE);
  });
  REQUIRE(registered == 0);
  finalizes_wanted = count;
}

// Never destroyed, as in the plug-in.
Process& entered() {
  auto& process = *new Process(plugin::host_table());
  REQUIRE(process.usable(kTask, 1, true).ok());
  REQUIRE(process.enter().ok());
  return process;
}

template <class Body>
int exit_code_of_child(Body body) {
  std::fflush(nullptr);  // otherwise the child would write the buffered output too
  const pid_t child = ::fork();
  if (child == 0) {
    [&]() noexcept { body(); }();
    std::exit(EXIT_SUCCESS);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

// This must run before the next test case, which initialises MPI in this process. The children here are forked from it.
TEST_CASE("mpi process: exit() finalises MPI, but not while other ranks wait for this one, nor in a forked child") {
  SECTION("in no job") {
    CHECK(exit_code_of_child([] {
            want_finalizes_at_exit(1);
            entered();
          }) == EXIT_SUCCESS);
  }
  SECTION("with a session open") {
    CHECK(exit_code_of_child([] {
            want_finalizes_at_exit(0);
            static const plugin::InJob session;
            entered();
          }) == EXIT_SUCCESS);
  }
  SECTION("with a session that a later handler of exit() leaves") {
    CHECK(exit_code_of_child([] {
            static std::optional<plugin::InJob> session;
            static Process* process = nullptr;
            want_finalizes_at_exit(1);
            std::atexit([] {
              if (fake_mpi_finalizes != 0) std::_Exit(EXIT_FAILURE);
              session.reset();
              process->group_closed();
            });
            session.emplace();
            process = &entered();
            process->group_closed();  // as when a process set is removed
            if (fake_mpi_finalizes != 0) std::_Exit(EXIT_FAILURE);
          }) == EXIT_SUCCESS);
  }
  SECTION("in a child of a rank, then in the rank") {
    CHECK(exit_code_of_child([] {
            want_finalizes_at_exit(0);
            entered();
            if (exit_code_of_child([] {}) != EXIT_SUCCESS) std::_Exit(EXIT_FAILURE);
            want_finalizes_at_exit(1);
          }) == EXIT_SUCCESS);
  }
}

TEST_CASE("mpi process: a thread level that is too low stays refused, and MPI is finalised all the same") {
  constexpr int kFunneled = 1;
  fake_mpi_level = kFunneled;
  want_finalizes_at_exit(1);
  auto& process = *new Process(plugin::host_table());
  REQUIRE(process.usable(kTask, 1, true).ok());
  const auto first = process.enter();
  REQUIRE(first.status().code() == Errc::kUnsupported);
  CHECK(first.status().message().find("allows calls of one thread only") != std::string::npos);
  // The next process set checks again.
  CHECK(process.usable(kTask, 1, true).code() == Errc::kUnsupported);
  CHECK(process.usable(kTask, 1, true).message() == first.status().message());
  CHECK(process.enter().status().code() == Errc::kUnsupported);
  CHECK(fake_mpi_inits == 1);
}

}  // namespace distrun::backend::mpi_plugin
