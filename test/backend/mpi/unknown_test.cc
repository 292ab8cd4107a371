// `mpi` in a program that is linked with an MPI whose binary interface distrun does not know. Here that is fake_mpi.c
// under the name of MPICH 4.
#include <dlfcn.h>

#include <catch2/catch_test_macros.hpp>

#include "runtime/backend/mpi/library/process.h"
#include "runtime/backend/plugin/host_group.h"

extern "C" int fake_mpi_inits;

namespace distrun::backend::mpi_plugin {

TEST_CASE("mpi process: no second MPI is loaded into a program that has one of an unknown interface") {
  Process process(plugin::host_table());
  const Environment task = {{"PMI_FD", "9"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}};
  const Status usable = process.usable(task, 1, true);
  REQUIRE(usable.code() == Errc::kUnsupported);
  CHECK(usable.message().find("has loaded libmpich.so.12") != std::string::npos);
  CHECK(usable.message().size() < sizeof(distrun_backend_capabilities::reason));
  CHECK(::dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD) == nullptr);
  CHECK(fake_mpi_inits == 0);
}

}  // namespace distrun::backend::mpi_plugin
