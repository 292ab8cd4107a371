// This process as a task of MPI, above an MPI that does as it is told (fake_mpi.c).
#include "runtime/backend/mpi/process.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

extern "C" {
extern int fake_mpi_level;
extern int fake_mpi_inits;
extern int fake_mpi_finalizes;
}

namespace distrun::backend::mpi_plugin {

TEST_CASE("mpi process: a thread level that is too low stays refused, and MPI is finalised all the same") {
  constexpr int kFunneled = 1;
  fake_mpi_level = kFunneled;
  // Registered before the process's own handler, so it runs after that.
  std::atexit([] {
    if (fake_mpi_finalizes != 1) std::_Exit(EXIT_FAILURE);
  });
  const Environment task = {{"OMPI_COMM_WORLD_SIZE", "1"}, {"DISTRUN_RANK", "0"}};
  auto& process = *new Process();  // as in the plug-in: there until the process has ended
  REQUIRE(process.usable(task, 1, true).ok());
  const auto first = process.enter();
  REQUIRE(first.status().code() == Errc::kUnsupported);
  CHECK(first.status().message().find("lets only one thread call it") != std::string::npos);
  // The next process set asks again.
  CHECK(process.usable(task, 1, true).code() == Errc::kUnsupported);
  CHECK(process.usable(task, 1, true).message() == first.status().message());
  CHECK(process.enter().status().code() == Errc::kUnsupported);
  CHECK(fake_mpi_inits == 1);
}

}  // namespace distrun::backend::mpi_plugin
