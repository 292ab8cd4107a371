// Compares our declarations of one of MPI's binary interfaces with its header, if that is installed: Open MPI's mpi.h,
// or the standard mpi_abi.h. The test is linked with the library of that header, but never initialises it.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "runtime/backend/mpi/library/library.h"
#include "test/backend/same_call.h"
#if defined(DISTRUN_HAS_MPI_ABI_H)
#include <mpi_abi.h>
#elif defined(DISTRUN_HAS_MPI_H)
#include <mpi.h>
#endif

namespace distrun::backend::mpi_plugin {
namespace {

#if defined(DISTRUN_HAS_MPI_ABI_H) || defined(OPEN_MPI)
#if defined(DISTRUN_HAS_MPI_ABI_H)
constexpr Abi kAbi = Abi::kStandard;
#else
constexpr Abi kAbi = Abi::kOpenMpi;
#endif

TEST_CASE("mpi: the functions are as the header has them") {
#define DISTRUN_MPI_FUNCTION(name, arguments) \
  STATIC_CHECK(test::SameCall<decltype(Functions::name), decltype(&::MPI_##name)>::value);
  DISTRUN_MPI_FUNCTIONS(DISTRUN_MPI_FUNCTION)
#undef DISTRUN_MPI_FUNCTION
}

TEST_CASE("mpi: the constants are as the header has them") {
  const auto library = load_library({kAbi});
  REQUIRE(library.ok());
  const Constants& is = library->is;
  CHECK(kSuccess == MPI_SUCCESS);
  CHECK(kErrorStringBytes >= MPI_MAX_ERROR_STRING);
  CHECK(kLibraryVersionBytes >= MPI_MAX_LIBRARY_VERSION_STRING);
  CHECK(kInPlace == MPI_IN_PLACE);
  CHECK(MPI_STATUS_IGNORE == nullptr);
  CHECK(is.world == MPI_COMM_WORLD);
  CHECK(is.errors_return == MPI_ERRORS_RETURN);
  CHECK(is.no_request == MPI_REQUEST_NULL);
  CHECK(is.sum == MPI_SUM);
  CHECK(is.product == MPI_PROD);
  CHECK(is.min == MPI_MIN);
  CHECK(is.max == MPI_MAX);
  CHECK(is.thread_serialized == MPI_THREAD_SERIALIZED);
  CHECK(is.thread_multiple == MPI_THREAD_MULTIPLE);
  const std::vector<Handle> types = {MPI_UINT8_T,  MPI_INT8_T,          MPI_INT16_T,         MPI_INT32_T,
                                     MPI_INT64_T,  MPI_UINT16_T,        MPI_UINT16_T,        MPI_FLOAT,
                                     MPI_DOUBLE,   MPI_UINT8_T,         MPI_UINT16_T,        MPI_UINT32_T,
                                     MPI_UINT64_T, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX};
  // The rest is only moved, as bytes.
  CHECK(std::vector<Handle>(is.types.begin(), is.types.begin() + static_cast<std::ptrdiff_t>(types.size())) == types);
}
#else
TEST_CASE("mpi: functions and constants are as the header has them") {
  SKIP("Open MPI's mpi.h is not on this machine: install libopenmpi-dev, or run scripts/test, which does");
}
#endif

}  // namespace
}  // namespace distrun::backend::mpi_plugin
