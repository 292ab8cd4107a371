// Functions that Python calls by ctypes (frameworks/jax/_native.py), and the handlers that XLA calls.
#include <cstdint>
#include <string>

#include "bindings/bridge/core.h"
#include "bindings/bridge/failures.h"
#include "bindings/jax/call_operation.h"
#include "bindings/jax/xla_ffi.h"
#include "distrun/distrun.h"

namespace xla = distrun::jax::xla;
using distrun::bridge::attachment;

#define DISTRUN_JAX_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using distrun::jax::CallOperation;

// XLA_FFI_Handler. If XLA asks for its metadata, it reports its version and no traits. It must not be part of anything
// that XLA records once and repeats, such as a command buffer (a CUDA graph).
xla::Error* handle(xla::CallFrame* frame, CallOperation::Place place) {
  for (xla::Extension* one = frame->extension; one != nullptr; one = one->next) {
    if (one->type != xla::kMetadataExtension) continue;
    xla::Metadata* metadata = reinterpret_cast<xla::MetadataExtension*>(one)->metadata;
    metadata->version.major = 0;
    metadata->version.minor = 1;
    metadata->traits = 0;
    return nullptr;
  }
  return CallOperation::start(*frame, place);
}

}  // namespace

DISTRUN_JAX_EXPORT xla::Error* distrun_jax_collective(xla::CallFrame* frame) {
  return handle(frame, CallOperation::Place::kHost);
}

DISTRUN_JAX_EXPORT xla::Error* distrun_jax_collective_cuda(xla::CallFrame* frame) {
  return handle(frame, CallOperation::Place::kCuda);
}

// Texts stay valid until the next call on this thread. An empty text means success.
DISTRUN_JAX_EXPORT const char* distrun_jax_bind(void* library) {
  thread_local std::string text;
  text = distrun::bridge::resolve_core(library);
  return text.c_str();
}

DISTRUN_JAX_EXPORT const char* distrun_jax_attach(distrun_session* session) {
  thread_local std::string text;
  text = attachment().attach(session);
  return text.c_str();
}

// Returns 0 if a thread still uses the session.
DISTRUN_JAX_EXPORT std::int32_t distrun_jax_detach() { return attachment().detach() ? 1 : 0; }

// Returns 1 if it filled `error` with the failure that `text`, from a JAX exception, reports.
DISTRUN_JAX_EXPORT std::int32_t distrun_jax_failure(const char* text, distrun_error* error) {
  return distrun::bridge::find_failure(text, *error) ? 1 : 0;
}
