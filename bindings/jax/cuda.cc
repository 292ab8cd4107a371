#include "bindings/jax/cuda.h"

#include <cstdint>

namespace distrun::jax {
namespace {

std::string check(int code, const char* call) {
  if (code == 0) return "";
  const char* name = nullptr;
  const bool known = cuda().error_name(code, &name) == 0 && name != nullptr;
  return std::string(call) + ": " + (known ? name : "CUDA's error " + std::to_string(code));
}

unsigned long long address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

template <class Body>
std::string CudaStream::in_context(const Body& body) const {
  if (std::string wrong = check(cuda().push_context(context_), "cuCtxPushCurrent"); !wrong.empty()) return wrong;
  const std::string wrong = body();
  void* popped = nullptr;
  cuda().pop_context(&popped);
  return wrong;
}

std::string CudaStream::open(void* stream) {
  if (!cuda().missing.empty()) return cuda().missing;
  stream_ = stream;
  if (std::string wrong = check(cuda().context_of(stream, &context_), "cuStreamGetCtx"); !wrong.empty()) return wrong;
  // A CUdevice is the number that the C API takes. JAX's own number differs if JAX was limited to some of the GPUs.
  return in_context([this] { return check(cuda().current_device(&device_), "cuCtxGetDevice"); });
}

std::string CudaStream::copy(const void* from, void* to, std::size_t bytes) const {
  return in_context([&] {
    const int code = cuda().copy(address(to), address(from), bytes, stream_);
    if (code != 0) return check(code, "cuMemcpyDtoDAsync");
    return check(cuda().synchronize(stream_), "cuStreamSynchronize");
  });
}

}  // namespace distrun::jax
