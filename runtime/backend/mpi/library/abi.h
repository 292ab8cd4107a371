// The part of MPI that this plug-in calls, in its two binary interfaces: Open MPI's (libmpi.so.40) and the standard ABI
// of MPI 5 (libmpi_abi.so: MPICH 5, Intel MPI). In both, handles are pointers, MPI_SUCCESS and MPI_STATUS_IGNORE are 0,
// and MPI_IN_PLACE is 1. Constants has the values that differ. So the build needs no mpi.h, and one binary works with
// both. test/backend/mpi/abi_test.cc compares this file with the headers.
#pragma once

#include <array>

#include "runtime/base/types.h"

namespace distrun::backend::mpi_plugin {

using Handle = void*;
using UserFunction = void(void* in, void* inout, int* count, Handle* datatype);

inline constexpr int kSuccess = 0;
inline constexpr std::size_t kErrorStringBytes = 512;
inline constexpr std::size_t kLibraryVersionBytes = 8192;  // enough for every library
inline void* const kInPlace = reinterpret_cast<void*>(1);

// X(name without MPI_, arguments). Every function returns an int.
#define DISTRUN_MPI_FUNCTIONS(X)                                                                                     \
  X(Initialized, (int* flag))                                                                                        \
  X(Finalized, (int* flag))                                                                                          \
  X(Init_thread, (int* argc, char*** argv, int required, int* provided))                                             \
  X(Query_thread, (int* provided))                                                                                   \
  X(Finalize, ())                                                                                                    \
  X(Error_string, (int code, char* text, int* length))                                                               \
  X(Get_library_version, (char* text, int* length))                                                                  \
  X(Comm_rank, (Handle comm, int* rank))                                                                             \
  X(Comm_size, (Handle comm, int* size))                                                                             \
  X(Comm_group, (Handle comm, Handle * group))                                                                       \
  X(Group_incl, (Handle group, int count, const int* ranks, Handle* made))                                           \
  X(Group_free, (Handle * group))                                                                                    \
  X(Comm_create_group, (Handle comm, Handle group, int tag, Handle* made))                                           \
  X(Comm_set_errhandler, (Handle comm, Handle errhandler))                                                           \
  X(Comm_free, (Handle * comm))                                                                                      \
  X(Op_create, (UserFunction * function, int commutative, Handle* op))                                               \
  X(Test, (Handle * request, int* done, void* status))                                                               \
  X(Iallreduce, (const void* in, void* out, int count, Handle type, Handle op, Handle comm, Handle* request))        \
  X(Ireduce, (const void* in, void* out, int count, Handle type, Handle op, int root, Handle comm, Handle* request)) \
  X(Ibcast, (void* data, int count, Handle type, int root, Handle comm, Handle* request))                            \
  X(Ibarrier, (Handle comm, Handle * request))                                                                       \
  X(Iallgatherv, (const void* in, int count, Handle in_type, void* out, const int* counts, const int* at,            \
                  Handle out_type, Handle comm, Handle* request))                                                    \
  X(Ireduce_scatter,                                                                                                 \
    (const void* in, void* out, const int* counts, Handle type, Handle op, Handle comm, Handle* request))            \
  X(Isend, (const void* data, int count, Handle type, int to, int tag, Handle comm, Handle* request))                \
  X(Irecv, (void* data, int count, Handle type, int from, int tag, Handle comm, Handle* request))

struct Functions {
#define DISTRUN_MPI_FUNCTION(name, arguments) int(*name) arguments = nullptr;
  DISTRUN_MPI_FUNCTIONS(DISTRUN_MPI_FUNCTION)
#undef DISTRUN_MPI_FUNCTION
};

struct Constants {
  Handle world = nullptr;
  Handle errors_return = nullptr;
  Handle no_request = nullptr;
  Handle sum = nullptr;
  Handle product = nullptr;
  Handle min = nullptr;
  Handle max = nullptr;
  // By DType. f16, bf16 and bool use the integer type of their size, for distrun's own reduction operations.
  std::array<Handle, kNumDTypes> types{};
  int thread_serialized = 0;
  int thread_multiple = 0;
};

}  // namespace distrun::backend::mpi_plugin
