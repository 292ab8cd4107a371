// What a failed call throws, and how a code of the C API becomes that. Any thread.
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

// A failed call: what() is a whole sentence that names what was wrong and the cure. docs/errors.md has the codes.
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
  std::string tensor;      // may be empty, as the next two
  std::string host;        // of the rank that failed
  std::string cause;       // what came first, in that rank's words
  std::vector<int> ranks;  // world ranks concerned
  bool usable;             // false: the job cannot go on
};

namespace detail {

// The last failure of this thread.
[[noreturn]] inline void fail() {
  distrun_error error = {};
  error.struct_size = sizeof(error);
  distrun_last_error(&error);
  throw Error(error);
}

inline void check(std::int32_t code) {
  if (code != DISTRUN_OK) fail();
}

// For what the C API is not asked.
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
