// Compares our declarations of CUDA's driver and of NCCL with their headers, if these are installed.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>

#include "runtime/backend/nccl/nccl_api.h"
#include "test/backend/same_call.h"
#if defined(DISTRUN_HAS_CUDA_H)
#include <cuda.h>
#endif
#if defined(DISTRUN_HAS_NCCL_H)
#include <nccl.h>
#endif

namespace distrun::backend::nccl_plugin {
namespace {

using test::SameCall;

#if defined(DISTRUN_HAS_CUDA_H)
TEST_CASE("nccl: the driver's functions are as cuda.h has them", "[nccl]") {
#define DISTRUN_CUDA_FUNCTION(member, symbol, arguments) \
  STATIC_CHECK(SameCall<decltype(CudaApi::member), decltype(&::symbol)>::value);
  DISTRUN_CUDA_FUNCTIONS(DISTRUN_CUDA_FUNCTION)
#undef DISTRUN_CUDA_FUNCTION
  STATIC_CHECK(kCuSuccess == CUDA_SUCCESS);
  STATIC_CHECK(kCuNotReady == CUDA_ERROR_NOT_READY);
  STATIC_CHECK(kCuStreamNonBlocking == CU_STREAM_NON_BLOCKING);
  STATIC_CHECK(kCuEventDisableTiming == CU_EVENT_DISABLE_TIMING);
  STATIC_CHECK(kCuCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
  STATIC_CHECK(kCuCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
  STATIC_CHECK(kCuHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
  STATIC_CHECK(sizeof(CuPointer) == sizeof(CUdeviceptr));
}
#else
TEST_CASE("nccl: the driver's functions are as cuda.h has them", "[nccl]") {
  SKIP("cuda.h is not on this machine: install the CUDA toolkit, or run scripts/test, which fetches it");
}
#endif

#if defined(DISTRUN_HAS_NCCL_H)
TEST_CASE("nccl: NCCL's functions are as nccl.h has them", "[nccl]") {
#define DISTRUN_NCCL_FUNCTION(result, member, symbol, arguments) \
  STATIC_CHECK(SameCall<decltype(NcclApi::member), decltype(&::symbol)>::value);
  DISTRUN_NCCL_FUNCTIONS(DISTRUN_NCCL_FUNCTION)
#undef DISTRUN_NCCL_FUNCTION
  STATIC_CHECK(kNcclSuccess == static_cast<int>(ncclSuccess));
  STATIC_CHECK(kNcclInProgress == static_cast<int>(ncclInProgress));
  STATIC_CHECK(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
  STATIC_CHECK(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
  STATIC_CHECK(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
  STATIC_CHECK(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
  STATIC_CHECK(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  CHECK(NcclConfig().magic == theirs.magic);
  STATIC_CHECK(static_cast<int>(kNcclInt8) == static_cast<int>(ncclInt8));
  STATIC_CHECK(static_cast<int>(kNcclUint8) == static_cast<int>(ncclUint8));
  STATIC_CHECK(static_cast<int>(kNcclInt32) == static_cast<int>(ncclInt32));
  STATIC_CHECK(static_cast<int>(kNcclUint32) == static_cast<int>(ncclUint32));
  STATIC_CHECK(static_cast<int>(kNcclInt64) == static_cast<int>(ncclInt64));
  STATIC_CHECK(static_cast<int>(kNcclUint64) == static_cast<int>(ncclUint64));
  STATIC_CHECK(static_cast<int>(kNcclFloat16) == static_cast<int>(ncclFloat16));
  STATIC_CHECK(static_cast<int>(kNcclFloat32) == static_cast<int>(ncclFloat32));
  STATIC_CHECK(static_cast<int>(kNcclFloat64) == static_cast<int>(ncclFloat64));
  STATIC_CHECK(static_cast<int>(kNcclBfloat16) == static_cast<int>(ncclBfloat16));
  STATIC_CHECK(static_cast<int>(kNcclSum) == static_cast<int>(ncclSum));
  STATIC_CHECK(static_cast<int>(kNcclProduct) == static_cast<int>(ncclProd));
  STATIC_CHECK(static_cast<int>(kNcclMax) == static_cast<int>(ncclMax));
  STATIC_CHECK(static_cast<int>(kNcclMin) == static_cast<int>(ncclMin));
  STATIC_CHECK(static_cast<int>(kNcclAverage) == static_cast<int>(ncclAvg));
}
#else
TEST_CASE("nccl: NCCL's functions are as nccl.h has them", "[nccl]") {
  SKIP("nccl.h is not on this machine: run scripts/test, which fetches it, or name its folder in CPATH");
}
#endif

}  // namespace
}  // namespace distrun::backend::nccl_plugin
