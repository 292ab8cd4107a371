// The GPU stream on which XLA runs a call, and what the handler needs from the CUDA driver there: the number of the
// GPU, and a copy. The driver's library is the one that JAX uses. It is looked up when a call arrives, so this library
// is built and loaded without CUDA. test/backend/nccl/jax_test.cc compares the functions with cuda.h if that is
// installed.
#pragma once

#include <cstddef>
#include <string>

namespace distrun::jax {

// X(member, symbol, arguments): every function returns CUDA's code, 0 for success.
#define DISTRUN_JAX_CUDA_FUNCTIONS(X)                                                                              \
  X(context_of, cuStreamGetCtx, (void* stream, void** context))                                                    \
  X(push_context, cuCtxPushCurrent_v2, (void* context))                                                            \
  X(pop_context, cuCtxPopCurrent_v2, (void** context))                                                             \
  X(current_device, cuCtxGetDevice, (int* device))                                                                 \
  X(copy, cuMemcpyDtoDAsync_v2, (unsigned long long to, unsigned long long from, std::size_t bytes, void* stream)) \
  X(synchronize, cuStreamSynchronize, (void* stream))                                                              \
  X(error_name, cuGetErrorName, (int error, const char** name))

struct Cuda {
#define X(member, symbol, arguments) int(*member) arguments = nullptr;
  DISTRUN_JAX_CUDA_FUNCTIONS(X)
#undef X
  std::string missing;  // empty: nothing is missing
};

// The functions in this process, looked up on first use. Any thread may call this.
const Cuda& cuda();

// Any thread may use it, one at a time. Leaves the thread's current CUDA context unchanged.
class CudaStream {
 public:
  // `stream` is XLA's. Returns an empty text, or the fault.
  std::string open(void* stream);
  [[nodiscard]] void* raw() const { return stream_; }
  [[nodiscard]] int device() const { return device_; }
  // Returns when the copy on the device is done, which means when the stream is empty. All earlier work on the stream
  // is done by then, such as the work that made an operation's input. Waits for no other stream.
  [[nodiscard]] std::string copy(const void* from, void* to, std::size_t bytes) const;

 private:
  template <class Body>
  std::string in_context(const Body& body) const;

  void* stream_ = nullptr;
  void* context_ = nullptr;
  int device_ = -1;
};

}  // namespace distrun::jax
