// The part of NCCL that this plug-in calls, as in libnccl.so.2. So the build needs no nccl.h.
// test/backend/nccl/abi_test.cc compares this file with the header, if there is one.
#pragma once

#include <climits>
#include <cstddef>

#include "runtime/backend/cuda/cuda_api.h"

namespace distrun::backend::nccl_plugin {

using namespace cuda_parts;  // NOLINT(google-build-using-namespace): NCCL and all code here use CUDA's types

using NcclResult = int;
using NcclComm = void*;

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclInProgress = 7;

inline constexpr std::size_t kNcclUniqueIdBytes = 128;
struct NcclUniqueId {
  char bytes[kNcclUniqueIdBytes];
};

// The config of NCCL 2.14, the first version with non-blocking calls. Newer versions read `version` and use defaults
// for their other fields.
inline constexpr int kNcclLeastVersion = 21400;
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kNcclLeastVersion;
  int blocking = 0;
};

enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9
};

enum NcclOp : int { kNcclSum = 0, kNcclProduct = 1, kNcclMax = 2, kNcclMin = 3, kNcclAverage = 4 };

// X(result, member, symbol, arguments)
#define DISTRUN_NCCL_FUNCTIONS(X)                                                                               \
  X(NcclResult, get_version, ncclGetVersion, (int* version))                                                    \
  X(NcclResult, get_unique_id, ncclGetUniqueId, (NcclUniqueId * id))                                            \
  X(NcclResult, init, ncclCommInitRankConfig,                                                                   \
    (NcclComm * comm, int members, NcclUniqueId id, int index, NcclConfig* config))                             \
  X(NcclResult, finalize, ncclCommFinalize, (NcclComm comm))                                                    \
  X(NcclResult, destroy, ncclCommDestroy, (NcclComm comm))                                                      \
  X(NcclResult, abort, ncclCommAbort, (NcclComm comm))                                                          \
  X(NcclResult, async_error, ncclCommGetAsyncError, (NcclComm comm, NcclResult * error))                        \
  X(const char*, error_string, ncclGetErrorString, (NcclResult error))                                          \
  X(const char*, last_error, ncclGetLastError, (NcclComm comm))                                                 \
  X(NcclResult, group_start, ncclGroupStart, ())                                                                \
  X(NcclResult, group_end, ncclGroupEnd, ())                                                                    \
  X(NcclResult, all_reduce, ncclAllReduce,                                                                      \
    (const void* in, void* out, std::size_t count, int type, int op, NcclComm comm, CuStream stream))           \
  X(NcclResult, reduce, ncclReduce,                                                                             \
    (const void* in, void* out, std::size_t count, int type, int op, int root, NcclComm comm, CuStream stream)) \
  X(NcclResult, broadcast, ncclBroadcast,                                                                       \
    (const void* in, void* out, std::size_t count, int type, int root, NcclComm comm, CuStream stream))         \
  X(NcclResult, all_gather, ncclAllGather,                                                                      \
    (const void* in, void* out, std::size_t count, int type, NcclComm comm, CuStream stream))                   \
  X(NcclResult, reduce_scatter, ncclReduceScatter,                                                              \
    (const void* in, void* out, std::size_t count, int type, int op, NcclComm comm, CuStream stream))           \
  X(NcclResult, send, ncclSend,                                                                                 \
    (const void* in, std::size_t count, int type, int peer, NcclComm comm, CuStream stream))                    \
  X(NcclResult, recv, ncclRecv, (void* out, std::size_t count, int type, int peer, NcclComm comm, CuStream stream))

struct NcclApi {
#define DISTRUN_NCCL_FUNCTION(result, member, symbol, arguments) result(*member) arguments = nullptr;
  DISTRUN_NCCL_FUNCTIONS(DISTRUN_NCCL_FUNCTION)
#undef DISTRUN_NCCL_FUNCTION
};

}  // namespace distrun::backend::nccl_plugin
