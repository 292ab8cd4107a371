// The exception of a failed call, and its conversion from a code of the C API. Any thread may use it.
#pragma once

#if __cplusplus < 201703L
#error "distrun.hpp needs C++17: compile with -std=c++17 or newer (CMake: target_compile_features(... cxx_std_17))"
#endif

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "distrun/distrun.h"

namespace distrun {

// A failed call. what() is a whole sentence with the fault and the cure. docs/reference/errors.md lists the codes.
class Error : public std::runtime_error {
 public:
  explicit Error(const distrun_error& error)
      : std::runtime_error(error.message),
        code(error.code),
        tensor(error.tensor),
        host(error.host),
        cause(error.cause),
        ranks(error.ranks, error.ranks + error.num_ranks),
        usable(error.usable != 0) {}
  int code;                // distrun_code
  std::string tensor;      // may be empty, as may host and cause
  std::string host;        // of the rank that failed
  std::string cause;       // the first cause, in the words of the failed rank
  std::vector<int> ranks;  // world ranks that it concerns
  bool usable;             // false: the job cannot continue
};

namespace detail {

// Throws the last failure of this thread.
[[noreturn]] inline void fail() {
  distrun_error error = {};
  error.struct_size = sizeof(error);
  distrun_last_error(&error);
  throw Error(error);
}

inline void check(std::int32_t code) {
  if (code != DISTRUN_OK) fail();
}

// Throws a failure that this header detects without the C API.
[[noreturn]] inline void refuse(const std::string& message, const std::string& tensor,
                                std::int32_t code = DISTRUN_INVALID_ARGUMENT) {
  distrun_error error = {};
  error.struct_size = sizeof(error);
  error.code = code;
  error.message = message.c_str();
  error.tensor = tensor.c_str();
  error.host = error.cause = "";
  error.usable = 1;
  throw Error(error);
}

}  // namespace detail
}  // namespace distrun
