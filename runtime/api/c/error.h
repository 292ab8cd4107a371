// Converts Status to the C API's codes: the thread's last error, struct sizes, and the conversion of exceptions.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "distrun/distrun.h"
#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"

namespace distrun::api {

// Stores a failure for distrun_last_error on this thread and returns its code. An ok status returns DISTRUN_OK and does
// not change the last error.
std::int32_t report(const Status& status);
// The same for the exception that is being handled. Reports a lack of memory without allocating any.
std::int32_t report_exception() noexcept;
const Status& last_error();

// The filled struct points into `status`, which must outlive it.
void fill_error(const Status& status, distrun_error* error);

// Copies into a struct whose owner may be compiled against another version: never more than its struct_size.
template <class T>
void copy_sized(T* target, T value) {
  const std::uint32_t size = target->struct_size;
  value.struct_size = size;
  std::memcpy(target, &value, size < sizeof(T) ? size : sizeof(T));
}

template <class T>
Status check_struct(const T* value, const char* what) {
  if (value == nullptr) return {Errc::kInvalidArgument, std::string(what) + " is NULL"};
  if (value->struct_size < sizeof(std::uint32_t) || value->struct_size > 4096) {
    return {Errc::kInvalidArgument, std::string(what) + ".struct_size is " + std::to_string(value->struct_size) +
                                        ". Set it to the size of the struct (DISTRUN_INIT)"};
  }
  return {};
}

// Runs the body of one C function. Refuses in a forked child, and turns exceptions into codes.
template <class Body>
std::int32_t guarded(const Body& body) {
  try {
    if (in_forked_child()) {
      return report(
          {Errc::kNotInitialized,
           "distrun was called in a forked child, but only the process that called init may use it. Start workers "
           "by the method spawn of Python's multiprocessing, or call distrun in the parent"});
    }
    return report(body());
  } catch (const std::exception&) {
    return report_exception();
  }
}

}  // namespace distrun::api
