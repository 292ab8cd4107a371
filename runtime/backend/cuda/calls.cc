#include "runtime/backend/cuda/calls.h"

#include <string>

namespace distrun::backend::cuda_parts {

Status Calls::check(CuResult code, const char* call) const {
  if (code == kCuSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  cuda.error_name(code, &name);
  cuda.error_string(code, &text);
  return {Errc::kSystem, "cuda:" + std::to_string(index) + ": " + call + ": " +
                             (name == nullptr ? "error " + std::to_string(code) : std::string(name)) +
                             (text == nullptr ? std::string() : " (" + std::string(text) + ")")};
}

Status Calls::check_memory(CuResult code, const char* call, std::size_t bytes, const char* for_what) const {
  const Status status = check(code, call);
  if (code != kCuOutOfMemory) return status;
  return {Errc::kOutOfMemory,
          "no memory for " + std::to_string(bytes) + " bytes " + for_what + ": " + status.message()};
}

}  // namespace distrun::backend::cuda_parts
