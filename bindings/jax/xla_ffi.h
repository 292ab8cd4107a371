// The parts of XLA's foreign function interface that distrun uses, in the layout of version 0.1 (xla/ffi/api/c_api.h),
// which jaxlib 0.6 and newer read. If a handler reports a newer version than jaxlib knows, jaxlib's whole CPU backend
// fails. So our handlers always report 0.1.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distrun::jax::xla {

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};
constexpr int kMetadataExtension = 1;

struct ApiVersion {
  std::size_t struct_size;
  Extension* extension;
  int major;
  int minor;
};

struct Error;    // owned by XLA
struct Future;   // owned by XLA
struct Context;  // owned by XLA

struct ErrorCreate {
  std::size_t struct_size;
  Extension* extension;
  const char* message;  // copied
  int code;
};
struct FutureCreate {
  std::size_t struct_size;
  Extension* extension;
  Future* future;  // out
};
struct FutureSetAvailable {
  std::size_t struct_size;
  Extension* extension;
  Future* future;
};
struct FutureSetError {
  std::size_t struct_size;
  Extension* extension;
  Future* future;
  Error* error;  // XLA takes ownership
};
struct StreamGet {
  std::size_t struct_size;
  Extension* extension;
  Context* context;
  void* stream;  // out: a CUstream on an NVIDIA GPU
};
struct RunIdGet {
  std::size_t struct_size;
  Extension* extension;
  Context* context;
  std::int64_t run_id;  // out
};

// XLA uses the codes of absl::StatusCode.
enum Code : int {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

struct Buffer {
  std::size_t struct_size;
  Extension* extension;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

struct ByteSpan {
  const char* data;
  std::size_t size;
};
struct Scalar {
  int dtype;
  void* value;
};
enum AttributeType : int { kScalarAttribute = 3, kStringAttribute = 4 };

struct Buffers {
  std::size_t struct_size;
  Extension* extension;
  std::int64_t size;
  int* types;
  void** values;
};
struct Attributes {
  std::size_t struct_size;
  Extension* extension;
  std::int64_t size;
  int* types;
  ByteSpan** names;
  void** values;
};

struct Api {
  std::size_t struct_size;
  Extension* extension;
  ApiVersion version;
  const void* internal;
  Error* (*error_create)(ErrorCreate*);
  void* unused_1[3];  // errors and registration
  Error* (*stream_get)(StreamGet*);
  void* unused_2[8];  // types, states, memory and threads
  Error* (*future_create)(FutureCreate*);
  Error* (*future_set_available)(FutureSetAvailable*);
  Error* (*future_set_error)(FutureSetError*);
  Error* (*run_id_get)(RunIdGet*);
  void* unused_3;
};
static_assert(offsetof(Api, error_create) == 48 && offsetof(Api, stream_get) == 80);
static_assert(offsetof(Api, future_create) == 152 && sizeof(Api) == 192);

struct CallFrame {
  std::size_t struct_size;
  Extension* extension;
  const Api* api;
  Context* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  Future* future;  // out: the call continues after the handler has returned, and memory stays until then
};
static_assert(offsetof(CallFrame, arguments) == 40 && sizeof(CallFrame) == 176);

struct Metadata {
  std::size_t struct_size;
  ApiVersion version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace distrun::jax::xla
