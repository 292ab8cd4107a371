// Functions that Python calls by ctypes (frameworks/tensorflow/_native.py), after TensorFlow has loaded this library.
#include <cstdint>

#include "bindings/bridge/core.h"
#include "bindings/bridge/failures.h"
#include "bindings/tensorflow/ops.h"
#include "bindings/tensorflow/signals.h"
#include "distrun/distrun.h"

using distrun::bridge::attachment;
using distrun::tensorflow::python;

#define DISTRUN_TF_EXPORT extern "C" __attribute__((visibility("default")))

// Texts stay valid until the next call on this thread. An empty text means success.
DISTRUN_TF_EXPORT const char* distrun_tensorflow_report() { return distrun::tensorflow::registration_report().c_str(); }

DISTRUN_TF_EXPORT const char* distrun_tensorflow_bind(void* library) {
  thread_local std::string text;
  text = distrun::bridge::resolve_core(library);
  return text.c_str();
}

DISTRUN_TF_EXPORT void distrun_tensorflow_python(void* ensure, void* release, void* check, void* fetch, void* restore) {
  python.gil_ensure = reinterpret_cast<decltype(python.gil_ensure)>(ensure);
  python.gil_release = reinterpret_cast<decltype(python.gil_release)>(release);
  python.fetch = reinterpret_cast<decltype(python.fetch)>(fetch);
  python.restore = reinterpret_cast<decltype(python.restore)>(restore);
  python.check_signals = reinterpret_cast<decltype(python.check_signals)>(check);
}

DISTRUN_TF_EXPORT const char* distrun_tensorflow_attach(distrun_session* session) {
  thread_local std::string text;
  text = attachment().attach(session);
  return text.c_str();
}

// Returns 0 if a thread still uses the session.
DISTRUN_TF_EXPORT std::int32_t distrun_tensorflow_detach() { return attachment().detach() ? 1 : 0; }

DISTRUN_TF_EXPORT void distrun_tensorflow_forget_numbers(std::int32_t process_set) {
  attachment().forget_numbers(process_set);
}

// Returns 1 if it filled `error` with the failure that `text`, from a TensorFlow exception, reports.
DISTRUN_TF_EXPORT std::int32_t distrun_tensorflow_failure(const char* text, distrun_error* error) {
  return distrun::bridge::find_failure(text, *error) ? 1 : 0;
}

// Needs the GIL (PyDLL). Raises the exception of a signal handler that raised while an operation waited, if any.
DISTRUN_TF_EXPORT void distrun_tensorflow_raise_kept() { distrun::tensorflow::raise_kept(); }
