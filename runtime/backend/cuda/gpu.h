// One GPU as this process uses it, next to the framework that owns the tensors: the device's primary context (which the
// framework has too), one stream of ours on which all work of distrun goes in order, and our kernels.
//
// Streams and events:
// - What makes a tensor ready is on the caller's stream. mark() records an event there, on the caller's thread; our
//   stream waits for it on the device (wait), so that no thread waits.
// - Work that was put on our stream is done when an event behind it is (end_of_work, reached). A second stream waits
//   for that event and calls back, which writes to the bell: no thread spins and ours does not stop for the callback.
// - Nothing here waits for a device, and nothing but cuEventQuery asks one. What the driver may do only when the device
//   rests (load code, lock memory) comes first: in set_up(), and in stage(), for which see there.
// Threads: mark, unmark, allocate, release, stage and unstage on any; all others on one (nccl: the lane's).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/backend/cuda/block_pool.h"
#include "runtime/backend/cuda/cuda_api.h"
#include "runtime/backend/cuda/kernels.h"
#include "runtime/base/annotations.h"
#include "runtime/base/status.h"
#include "runtime/base/system/fork_guard.h"

namespace distrun::backend::cuda_parts {

class Gpu;

// A place on a caller's stream.
struct Mark {
  Gpu* gpu = nullptr;
  CuEvent event = nullptr;
};

// Makes a GPU the calling thread's current one for a scope. What the program captures into a CUDA graph meanwhile, on
// any thread, is left alone: nothing of ours goes to a stream that is captured (Gpu::mark), and without this the driver
// would refuse what has nothing to do with it, as to ask an event, and end the capture.
class Current {
 public:
  Current(const CudaApi& cuda, CuContext context) : cuda_(cuda), pushed_(cuda.push_context(context) == kCuSuccess) {
    exchanged_ = cuda_.exchange_capture_mode(&capture_mode_) == kCuSuccess;
  }
  ~Current() {
    if (exchanged_) cuda_.exchange_capture_mode(&capture_mode_);
    CuContext popped = nullptr;
    if (pushed_) cuda_.pop_context(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const CudaApi& cuda_;
  bool pushed_;
  int capture_mode_ = kCuCaptureRelaxed;
  bool exchanged_ = false;
};

class Gpu {
 public:
  // `cuda` and `image` (PTX that ends with a zero byte) outlive the GPU.
  static Result<std::unique_ptr<Gpu>> open(const CudaApi& cuda, int index, const char* image);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] int index() const { return calls_.index; }
  [[nodiscard]] Current current() const { return {calls_.cuda, context_}; }
  void make_current(std::optional<Current>& scope) const { scope.emplace(calls_.cuda, context_); }
  [[nodiscard]] CuStream stream() const { return stream_; }

  Result<std::unique_ptr<Mark>> mark(CuStream callers);
  void unmark(std::unique_ptr<Mark> mark);
  // In the order of our stream. `element`, repeated, becomes the content; none: whatever was there.
  Result<void*> allocate(std::size_t bytes, std::span<const std::byte> element);
  void release(void* memory);
  // Of the host, where the GPU can reach it. May wait for the device, so only while nothing of NCCL's is on it: peers
  // may be waiting for this rank.
  Result<void*> stage(std::size_t bytes);
  void unstage(void* memory);

  Status wait(const Mark& mark);
  Status copy(const void* from, void* to, std::size_t bytes);
  // The buffer that every operation uses in its turn; what it held is lost when it grows.
  Result<std::byte*> buffer(std::size_t bytes);
  // Also in the order of our stream.
  [[nodiscard]] const Kernels& kernels() const { return kernels_; }
  [[nodiscard]] BlockPool& blocks() { return blocks_; }

  // An event behind everything on our stream; give it back once it is reached. end_of_work() rings the bell then.
  Result<CuEvent> event_here();
  Result<CuEvent> end_of_work();
  Result<bool> reached(CuEvent event) const;
  void give_back(CuEvent event);

  // Rings when an end of work is reached, or when ring() is called (any thread).
  [[nodiscard]] int bell() const { return bell_.get(); }
  void ring() const;
  void hush() const;

 private:
  Gpu(const CudaApi& cuda, int index, const char* image)
      : calls_{cuda, index}, kernels_(calls_, image), blocks_(calls_) {}
  Status set_up();
  Status fill(CuPointer memory, std::size_t bytes, std::span<const std::byte> element);
  Result<CuEvent> take_event();

  const Calls calls_;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  CuStream notify_ = nullptr;
  Kernels kernels_;
  std::byte* buffer_ = nullptr;
  std::size_t buffer_bytes_ = 0;
  BlockPool blocks_;
  GuardedFd bell_;
  Mutex mutex_;
  std::vector<CuEvent> spare_ DISTRUN_GUARDED_BY(mutex_);
};

}  // namespace distrun::backend::cuda_parts
