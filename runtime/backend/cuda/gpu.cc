#include "runtime/backend/cuda/gpu.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace distrun::backend::cuda_parts {
namespace {

// Runs on a thread of the driver, where CUDA must not be called.
void ring_bell(void* data) {
  const eventfd_t one = 1;
  ::eventfd_write(static_cast<int>(reinterpret_cast<std::intptr_t>(data)), one);
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(const CudaApi& cuda, int index, const char* image) {
  std::unique_ptr<Gpu> gpu(new Gpu(cuda, index, image));  // the constructor is private
  DISTRUN_RETURN_IF_ERROR(gpu->set_up());
  return gpu;
}

Status Gpu::set_up() {
  DISTRUN_RETURN_IF_ERROR(calls_.check(calls_.cuda.init(0), "cuInit"));
  int device = 0;
  DISTRUN_RETURN_IF_ERROR(calls_.check(calls_.cuda.device_get(&device, calls_.index), "cuDeviceGet"));
  DISTRUN_RETURN_IF_ERROR(calls_.check(calls_.cuda.retain_context(&context_, device), "cuDevicePrimaryCtxRetain"));
  const Current scope = current();
  DISTRUN_RETURN_IF_ERROR(calls_.check(calls_.cuda.stream_create(&stream_, kCuStreamNonBlocking), "cuStreamCreate"));
  DISTRUN_RETURN_IF_ERROR(calls_.check(calls_.cuda.stream_create(&notify_, kCuStreamNonBlocking), "cuStreamCreate"));
  DISTRUN_RETURN_IF_ERROR(kernels_.load(stream_));
  bell_ = GuardedFd(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  return bell_.valid() ? Status() : errno_status("eventfd for a GPU", errno);
}

// Keeps the primary context: it belongs to the program, and its last user may be gone before this.
Gpu::~Gpu() {
  const Current scope = current();
  for (CuEvent event : spare_) calls_.cuda.event_destroy(event);
  blocks_.free_all();
  if (buffer_ != nullptr) calls_.cuda.release(device_address(buffer_), stream_);
  kernels_.unload();
  if (notify_ != nullptr) calls_.cuda.stream_destroy(notify_);
  if (stream_ != nullptr) calls_.cuda.stream_destroy(stream_);
}

Result<CuEvent> Gpu::take_event() {
  {
    const MutexLock lock(mutex_);
    if (!spare_.empty()) {
      CuEvent event = spare_.back();
      spare_.pop_back();
      return event;
    }
  }
  CuEvent event = nullptr;
  DISTRUN_RETURN_IF_ERROR(calls_.check(calls_.cuda.event_create(&event, kCuEventDisableTiming), "cuEventCreate"));
  return event;
}

// A wait that is already on a stream stays valid when the event is recorded again.
void Gpu::give_back(CuEvent event) {
  const MutexLock lock(mutex_);
  spare_.push_back(event);
}

Result<std::unique_ptr<Mark>> Gpu::mark(CuStream callers) {
  const Current scope = current();
  int capturing = kCuCaptureNone;
  DISTRUN_RETURN_IF_ERROR(calls_.check(calls_.cuda.stream_is_capturing(callers, &capturing), "cuStreamIsCapturing"));
  if (capturing != kCuCaptureNone) {
    return Status(Errc::kUnsupported,
                  "the stream is being captured into a CUDA graph, which cannot contain an operation between ranks. "
                  "Submit it outside the capture");
  }
  auto event = take_event();
  if (!event.ok()) return event.status();
  auto mark = std::make_unique<Mark>(Mark{.gpu = this, .event = *event});
  if (const Status status = calls_.check(calls_.cuda.event_record(*event, callers), "cuEventRecord"); !status.ok()) {
    give_back(*event);
    return status;
  }
  return mark;
}

void Gpu::unmark(std::unique_ptr<Mark> mark) { give_back(mark->event); }

Result<void*> Gpu::allocate(std::size_t bytes, std::span<const std::byte> element) {
  if (bytes == 0) return nullptr;
  const Current scope = current();
  CuPointer memory = 0;
  const CuResult code = calls_.cuda.allocate(&memory, bytes, stream_);
  DISTRUN_RETURN_IF_ERROR(calls_.check_memory(code, "cuMemAllocAsync", bytes, "on the GPU"));
  if (const Status filled = fill(memory, bytes, element); !filled.ok()) {
    calls_.cuda.release(memory, stream_);
    return filled;
  }
  return reinterpret_cast<void*>(memory);
}

Status Gpu::fill(CuPointer memory, std::size_t bytes, std::span<const std::byte> element) {
  if (element.empty()) return {};
  std::array<std::uint32_t, 2> words{};
  std::memcpy(words.data(), element.data(), std::min(element.size(), sizeof(words)));
  const std::size_t count = bytes / element.size();
  switch (element.size()) {
    case 1:
      return calls_.check(calls_.cuda.fill8(memory, static_cast<unsigned char>(words[0]), count, stream_),
                          "cuMemsetD8Async");
    case 2:
      return calls_.check(calls_.cuda.fill16(memory, static_cast<unsigned short>(words[0]), count, stream_),
                          "cuMemsetD16Async");
    case 4:
      return calls_.check(calls_.cuda.fill32(memory, words[0], count, stream_), "cuMemsetD32Async");
    default:  // first the low halves of all elements, then the high halves
      DISTRUN_RETURN_IF_ERROR(
          calls_.check(calls_.cuda.fill32_rows(memory, 8, words[0], 1, count, stream_), "cuMemsetD2D32Async"));
      return calls_.check(calls_.cuda.fill32_rows(memory + 4, 8, words[1], 1, count, stream_), "cuMemsetD2D32Async");
  }
}

void Gpu::release(void* memory) {
  if (memory == nullptr) return;
  const Current scope = current();
  calls_.cuda.release(device_address(memory), stream_);
}

Result<void*> Gpu::stage(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Current scope = current();
  void* memory = nullptr;
  const CuResult code = calls_.cuda.host_allocate(&memory, bytes, kCuHostAllocPortable);
  DISTRUN_RETURN_IF_ERROR(calls_.check_memory(code, "cuMemHostAlloc", bytes, "in page-locked memory"));
  return memory;
}

void Gpu::unstage(void* memory) {
  if (memory == nullptr) return;
  const Current scope = current();
  calls_.cuda.host_release(memory);
}

Status Gpu::wait(const Mark& mark) {
  return calls_.check(calls_.cuda.stream_wait(stream_, mark.event, 0), "cuStreamWaitEvent");
}

Status Gpu::copy(const void* from, void* to, std::size_t bytes) {
  if (bytes == 0 || from == to) return {};
  return calls_.check(calls_.cuda.copy(device_address(to), device_address(from), bytes, stream_), "cuMemcpyDtoDAsync");
}

Result<std::byte*> Gpu::buffer(std::size_t bytes) {
  if (bytes <= buffer_bytes_) return buffer_;
  if (buffer_ != nullptr) calls_.cuda.release(device_address(buffer_), stream_);
  buffer_ = nullptr;
  buffer_bytes_ = 0;
  CuPointer memory = 0;
  const CuResult code = calls_.cuda.allocate(&memory, bytes, stream_);
  DISTRUN_RETURN_IF_ERROR(calls_.check_memory(code, "cuMemAllocAsync", bytes, "of the fusion buffer"));
  buffer_ = reinterpret_cast<std::byte*>(memory);
  buffer_bytes_ = bytes;
  return buffer_;
}

Result<CuEvent> Gpu::event_here() {
  auto event = take_event();
  if (!event.ok()) return event.status();
  const Status recorded = calls_.check(calls_.cuda.event_record(*event, stream_), "cuEventRecord");
  if (recorded.ok()) return event;
  give_back(*event);
  return recorded;
}

Result<CuEvent> Gpu::end_of_work() {
  auto event = event_here();
  if (!event.ok()) return event.status();
  void* bell = reinterpret_cast<void*>(static_cast<std::intptr_t>(bell_.get()));
  // If this fails, the watching thread notices the end a little later.
  if (calls_.cuda.stream_wait(notify_, *event, 0) == kCuSuccess)
    calls_.cuda.launch_host_function(notify_, &ring_bell, bell);
  return event;
}

Result<bool> Gpu::reached(CuEvent event) const {
  const CuResult code = calls_.cuda.event_query(event);
  if (code == kCuNotReady) return false;
  DISTRUN_RETURN_IF_ERROR(calls_.check(code, "cuEventQuery"));
  return true;
}

void Gpu::ring() const {
  const eventfd_t one = 1;
  ::eventfd_write(bell_.get(), one);
}

void Gpu::clear_bell() const {
  eventfd_t rung = 0;
  ::eventfd_read(bell_.get(), &rung);
}

}  // namespace distrun::backend::cuda_parts
