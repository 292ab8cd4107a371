// One GPU as this process uses it, besides the framework that owns the tensors. It has the device's primary context
// (which the framework uses too), one stream for all work of distrun in order, and distrun's kernels.
//
// Streams and events:
// - The work that makes a tensor ready is on the caller's stream. mark() records an event there, on the caller's
//   thread. distrun's stream waits for the event on the device (wait), so no thread waits.
// - Work on distrun's stream is done when an event after it is reached (end_of_work, reached). A second stream waits
//   for that event, and its callback writes to the bell. So no thread spins, and distrun's stream does not stop for the
//   callback.
// - Nothing here waits for a device, and only cuEventQuery queries one. The driver can do some things only while the
//   device is idle (load code, lock memory). They are done in advance in set_up(), and in stage(); see there.
//
// Threads: any thread may call mark, unmark, allocate, release, stage and unstage. Only one thread calls the others
// (for nccl, the lane's thread).
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

// A position on a caller's stream.
struct Mark {
  Gpu* gpu = nullptr;
  CuEvent event = nullptr;
};

// Makes a GPU current for the calling thread, for a scope. It also sets the thread's capture mode to relaxed, because
// the program may capture a CUDA graph at the same time, on any thread. distrun puts nothing on a captured stream
// (Gpu::mark). But without the relaxed mode, the driver would refuse unrelated calls, such as an event query, and would
// end the capture.
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
  // `cuda` and `image` (PTX that ends with a zero byte) must outlive the GPU.
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
  // Both are ordered on distrun's stream. `element` is repeated as the content; if it is empty, any content.
  Result<void*> allocate(std::size_t bytes, std::span<const std::byte> element);
  void release(void* memory);
  // Host memory that the GPU can access. May wait for the device, so call it only while NCCL has no work on the device:
  // peers may wait for this rank.
  Result<void*> stage(std::size_t bytes);
  void unstage(void* memory);

  Status wait(const Mark& mark);
  Status copy(const void* from, void* to, std::size_t bytes);
  // The buffer that all operations use in turn. Its content is lost when it grows.
  Result<std::byte*> buffer(std::size_t bytes);
  // The kernels also run in the order of distrun's stream.
  [[nodiscard]] const Kernels& kernels() const { return kernels_; }
  [[nodiscard]] BlockPool& blocks() { return blocks_; }

  // An event after all work on distrun's stream. Give it back when it is reached. For end_of_work() the bell then
  // rings.
  Result<CuEvent> event_here();
  Result<CuEvent> end_of_work();
  Result<bool> reached(CuEvent event) const;
  void give_back(CuEvent event);

  // A descriptor that becomes readable when an end of work is reached, or when ring() is called (any thread).
  // clear_bell() resets it.
  [[nodiscard]] int bell() const { return bell_.get(); }
  void ring() const;
  void clear_bell() const;

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
