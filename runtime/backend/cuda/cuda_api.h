// The part of CUDA's driver interface that the plug-ins call, as in libcuda.so.1. So the build needs no cuda.h, and
// nothing needs libcuda to load. test/backend/nccl/abi_test.cc compares this file with the header, if there is one. The
// driver's streams, events and primary contexts are the same as those of the runtime library (libcudart), which
// frameworks use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distrun::backend::cuda_parts {

using CuResult = int;
using CuContext = void*;
using CuStream = void*;
using CuEvent = void*;
using CuModule = void*;
using CuFunction = void*;
using CuPointer = unsigned long long;
using CuHostFunction = void(void* data);

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuNotReady = 600;
inline constexpr unsigned kCuStreamNonBlocking = 1;  // does not wait for the legacy default stream
inline constexpr unsigned kCuEventDisableTiming = 2;
inline constexpr int kCuCaptureNone = 0;
inline constexpr int kCuCaptureRelaxed = 2;  // a thread's mode: all calls are allowed while streams are captured
inline constexpr unsigned kCuHostAllocPortable = 1;

// X(member, symbol, arguments). Every function returns a CuResult.
#define DISTRUN_CUDA_FUNCTIONS(X)                                                                                \
  X(init, cuInit, (unsigned flags))                                                                              \
  X(driver_version, cuDriverGetVersion, (int* version))                                                          \
  X(error_name, cuGetErrorName, (CuResult error, const char** name))                                             \
  X(error_string, cuGetErrorString, (CuResult error, const char** text))                                         \
  X(device_get, cuDeviceGet, (int* device, int ordinal))                                                         \
  X(retain_context, cuDevicePrimaryCtxRetain, (CuContext * context, int device))                                 \
  X(push_context, cuCtxPushCurrent_v2, (CuContext context))                                                      \
  X(pop_context, cuCtxPopCurrent_v2, (CuContext * context))                                                      \
  X(stream_create, cuStreamCreate, (CuStream * stream, unsigned flags))                                          \
  X(stream_destroy, cuStreamDestroy_v2, (CuStream stream))                                                       \
  X(stream_wait, cuStreamWaitEvent, (CuStream stream, CuEvent event, unsigned flags))                            \
  X(stream_is_capturing, cuStreamIsCapturing, (CuStream stream, int* status))                                    \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int* mode))                                       \
  X(launch_host_function, cuLaunchHostFunc, (CuStream stream, CuHostFunction * function, void* data))            \
  X(event_create, cuEventCreate, (CuEvent * event, unsigned flags))                                              \
  X(event_record, cuEventRecord, (CuEvent event, CuStream stream))                                               \
  X(event_query, cuEventQuery, (CuEvent event))                                                                  \
  X(event_destroy, cuEventDestroy_v2, (CuEvent event))                                                           \
  X(allocate, cuMemAllocAsync, (CuPointer * memory, std::size_t bytes, CuStream stream))                         \
  X(release, cuMemFreeAsync, (CuPointer memory, CuStream stream))                                                \
  X(allocate_plain, cuMemAlloc_v2, (CuPointer * memory, std::size_t bytes))                                      \
  X(release_plain, cuMemFree_v2, (CuPointer memory))                                                             \
  X(host_allocate, cuMemHostAlloc, (void** memory, std::size_t bytes, unsigned flags))                           \
  X(host_release, cuMemFreeHost, (void* memory))                                                                 \
  X(copy, cuMemcpyDtoDAsync_v2, (CuPointer to, CuPointer from, std::size_t bytes, CuStream stream))              \
  X(fill8, cuMemsetD8Async, (CuPointer to, unsigned char value, std::size_t count, CuStream stream))             \
  X(fill16, cuMemsetD16Async, (CuPointer to, unsigned short value, std::size_t count, CuStream stream))          \
  X(fill32, cuMemsetD32Async, (CuPointer to, unsigned value, std::size_t count, CuStream stream))                \
  X(fill32_rows, cuMemsetD2D32Async,                                                                             \
    (CuPointer to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height, CuStream stream))   \
  X(load_module, cuModuleLoadData, (CuModule * module, const void* image))                                       \
  X(unload_module, cuModuleUnload, (CuModule module))                                                            \
  X(get_function, cuModuleGetFunction, (CuFunction * function, CuModule module, const char* name))               \
  X(launch, cuLaunchKernel,                                                                                      \
    (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, CuStream stream, void** parameters, void** extra))

struct CudaApi {
#define DISTRUN_CUDA_FUNCTION(member, symbol, arguments) CuResult(*member) arguments = nullptr;
  DISTRUN_CUDA_FUNCTIONS(DISTRUN_CUDA_FUNCTION)
#undef DISTRUN_CUDA_FUNCTION
};

inline CuPointer device_address(const void* pointer) { return reinterpret_cast<CuPointer>(pointer); }

}  // namespace distrun::backend::cuda_parts
