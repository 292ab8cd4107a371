// The stream of a GPU on which XLA runs a call, and what the handler asks CUDA's driver for there: which GPU it is, and
// a copy. The driver's library is the one that JAX uses, looked for when a call comes: nothing of CUDA's is needed to
// build or to load ours. test/backend/nccl/jax_test.cc compares the functions with cuda.h where there is one.
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
  std::string missing;  // empty: none is
};

// Of this process, found on first use. Any thread.
const Cuda& cuda();

// Any thread, one at a time. Leaves the thread's current context as it was.
class CudaStream {
 public:
  // `stream` is XLA's. Empty, or what is wrong.
  std::string open(void* stream);
  [[nodiscard]] void* raw() const { return stream_; }
  [[nodiscard]] int device() const { return device_; }
  // Returns when the copy on the device is done: when the end of this stream is reached, on which everything else is
  // done by then, as what made an operation's input is before its result. No other stream is waited for.
  [[nodiscard]] std::string copy(const void* from, void* to, std::size_t bytes) const;

 private:
  template <class Body>
  std::string in_context(const Body& body) const;

  void* stream_ = nullptr;
  void* context_ = nullptr;
  int device_ = -1;
};

}  // namespace distrun::jax
