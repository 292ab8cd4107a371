#include "runtime/backend/cuda/gpu.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace distrun::backend::cuda_parts {
namespace {

constexpr std::size_t kLeastBlock = std::size_t{1} << 20;
constexpr unsigned kMostBlocks = 1024;  // of threads; each takes several tiles where there are more

// On a thread of the driver's, where nothing of CUDA may be called.
void ring_bell(void* data) {
  const eventfd_t one = 1;
  ::eventfd_write(static_cast<int>(reinterpret_cast<std::intptr_t>(data)), one);
}

// The pieces that fit into one launch; `pieces` keeps the others. What is done to them is as in `like`.
Batch take_batch(std::span<const Piece>& pieces, const Batch& like) {
  Batch batch = like;
  std::uint64_t tiles = 0;
  while (!pieces.empty() && batch.num_pieces < kPieces) {
    const Piece& piece = pieces.front();
    tiles += (piece.count + kTileElements - 1) / kTileElements;
    if (piece.count > 0) {
      batch.pieces[batch.num_pieces] = piece;
      batch.tile_ends[batch.num_pieces++] = static_cast<std::uint32_t>(tiles);
    }
    pieces = pieces.subspan(1);
  }
  return batch;
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(const CudaApi& cuda, int index, const char* image) {
  std::unique_ptr<Gpu> gpu(new Gpu(cuda, index, image));  // the constructor is private
  DISTRUN_RETURN_IF_ERROR(gpu->set_up());
  return gpu;
}

Status Gpu::set_up() {
  DISTRUN_RETURN_IF_ERROR(check(cuda_.init(0), "cuInit"));
  int device = 0;
  DISTRUN_RETURN_IF_ERROR(check(cuda_.device_get(&device, index_), "cuDeviceGet"));
  DISTRUN_RETURN_IF_ERROR(check(cuda_.retain_context(&context_, device), "cuDevicePrimaryCtxRetain"));
  const Current scope = current();
  DISTRUN_RETURN_IF_ERROR(check(cuda_.stream_create(&stream_, kCuStreamNonBlocking), "cuStreamCreate"));
  DISTRUN_RETURN_IF_ERROR(check(cuda_.stream_create(&notify_, kCuStreamNonBlocking), "cuStreamCreate"));
  DISTRUN_RETURN_IF_ERROR(load_kernels());
  bell_ = GuardedFd(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  return bell_.valid() ? Status() : errno_status("eventfd for a GPU", errno);
}

// Before the first operation: while NCCL's work is on the device the driver may wait for it.
Status Gpu::load_kernels() {
  if (const Status status = check(cuda_.load_module(&module_, image_), "cuModuleLoadData"); !status.ok()) {
    return {status.code(), status.message() + "; distrun's kernels are for GPUs of compute capability 7.5 and newer"};
  }
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (const std::string kind : {"pack", "unpack", "combine"}) {
      const std::string name = kind + "_" + wire_type(static_cast<DType>(dtype)).name;
      CuFunction& kernel = kernels_[name];
      const CuResult code = cuda_.get_function(&kernel, module_, ("distrun_" + name).c_str());
      DISTRUN_RETURN_IF_ERROR(check(code, "cuModuleGetFunction"));
    }
  }
  return {};
}

// The primary context stays: it is the program's, and its last user may be gone before this.
Gpu::~Gpu() {
  const Current scope = current();
  for (CuEvent event : spare_) cuda_.event_destroy(event);
  for (const Block& one : blocks_) cuda_.release_plain(device_address(one.memory));
  if (buffer_ != nullptr) cuda_.release(device_address(buffer_), stream_);
  if (module_ != nullptr) cuda_.unload_module(module_);
  if (notify_ != nullptr) cuda_.stream_destroy(notify_);
  if (stream_ != nullptr) cuda_.stream_destroy(stream_);
}

Status Gpu::check(CuResult code, const char* call) const {
  if (code == kCuSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  cuda_.error_name(code, &name);
  cuda_.error_string(code, &text);
  return {Errc::kSystem, "cuda:" + std::to_string(index_) + ": " + call + ": " +
                             (name == nullptr ? "error " + std::to_string(code) : std::string(name)) +
                             (text == nullptr ? std::string() : " (" + std::string(text) + ")")};
}

Status Gpu::check_memory(CuResult code, const char* call, std::size_t bytes, const char* for_what) const {
  const Status status = check(code, call);
  if (code != kCuOutOfMemory) return status;
  return {Errc::kOutOfMemory,
          "no memory for " + std::to_string(bytes) + " bytes " + for_what + ": " + status.message()};
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
  DISTRUN_RETURN_IF_ERROR(check(cuda_.event_create(&event, kCuEventDisableTiming), "cuEventCreate"));
  return event;
}

// A wait that was put on a stream keeps its meaning when the event is recorded again.
void Gpu::give_back(CuEvent event) {
  const MutexLock lock(mutex_);
  spare_.push_back(event);
}

Result<std::unique_ptr<Mark>> Gpu::mark(CuStream callers) {
  const Current scope = current();
  int capturing = kCuCaptureNone;
  DISTRUN_RETURN_IF_ERROR(check(cuda_.stream_is_capturing(callers, &capturing), "cuStreamIsCapturing"));
  if (capturing != kCuCaptureNone) {
    return Status(Errc::kUnsupported,
                  "the stream is being captured into a CUDA graph, which cannot hold an operation between ranks; "
                  "submit outside of the capture");
  }
  auto event = take_event();
  if (!event.ok()) return event.status();
  auto mark = std::make_unique<Mark>(Mark{.gpu = this, .event = *event});
  if (const Status status = check(cuda_.event_record(*event, callers), "cuEventRecord"); !status.ok()) {
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
  const CuResult code = cuda_.allocate(&memory, bytes, stream_);
  DISTRUN_RETURN_IF_ERROR(check_memory(code, "cuMemAllocAsync", bytes, "on the GPU"));
  if (const Status filled = fill(memory, bytes, element); !filled.ok()) {
    cuda_.release(memory, stream_);
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
      return check(cuda_.fill8(memory, static_cast<unsigned char>(words[0]), count, stream_), "cuMemsetD8Async");
    case 2:
      return check(cuda_.fill16(memory, static_cast<unsigned short>(words[0]), count, stream_), "cuMemsetD16Async");
    case 4:
      return check(cuda_.fill32(memory, words[0], count, stream_), "cuMemsetD32Async");
    default:  // the low halves of all elements, then the high ones
      DISTRUN_RETURN_IF_ERROR(check(cuda_.fill32_rows(memory, 8, words[0], 1, count, stream_), "cuMemsetD2D32Async"));
      return check(cuda_.fill32_rows(memory + 4, 8, words[1], 1, count, stream_), "cuMemsetD2D32Async");
  }
}

void Gpu::release(void* memory) {
  if (memory == nullptr) return;
  const Current scope = current();
  cuda_.release(device_address(memory), stream_);
}

Result<void*> Gpu::stage(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Current scope = current();
  void* memory = nullptr;
  const CuResult code = cuda_.host_allocate(&memory, bytes, kCuHostAllocPortable);
  DISTRUN_RETURN_IF_ERROR(check_memory(code, "cuMemHostAlloc", bytes, "in page-locked memory"));
  return memory;
}

void Gpu::unstage(void* memory) {
  if (memory == nullptr) return;
  const Current scope = current();
  cuda_.host_release(memory);
}

Status Gpu::wait(const Mark& mark) { return check(cuda_.stream_wait(stream_, mark.event, 0), "cuStreamWaitEvent"); }

Status Gpu::copy(const void* from, void* to, std::size_t bytes) {
  if (bytes == 0 || from == to) return {};
  return check(cuda_.copy(device_address(to), device_address(from), bytes, stream_), "cuMemcpyDtoDAsync");
}

Result<std::byte*> Gpu::buffer(std::size_t bytes) {
  if (bytes <= buffer_bytes_) return buffer_;
  if (buffer_ != nullptr) cuda_.release(device_address(buffer_), stream_);
  buffer_ = nullptr;
  buffer_bytes_ = 0;
  CuPointer memory = 0;
  const CuResult code = cuda_.allocate(&memory, bytes, stream_);
  DISTRUN_RETURN_IF_ERROR(check_memory(code, "cuMemAllocAsync", bytes, "of the fusion buffer"));
  buffer_ = reinterpret_cast<std::byte*>(memory);
  buffer_bytes_ = bytes;
  return buffer_;
}

Result<Gpu::Block> Gpu::take_block(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeastBlock));
  const auto fits =
      std::ranges::find_if(blocks_, [&](const Block& one) { return one.bytes >= bytes && one.bytes <= size; });
  if (fits != blocks_.end()) {
    const Block found = *fits;
    blocks_.erase(fits);
    return found;
  }
  CuPointer memory = 0;
  const CuResult code = cuda_.allocate_plain(&memory, size);
  if (code != kCuOutOfMemory) {
    DISTRUN_RETURN_IF_ERROR(check(code, "cuMemAlloc"));
    return Block{.memory = reinterpret_cast<std::byte*>(memory), .bytes = size};
  }
  // The last resort.
  for (const Block& one : std::exchange(blocks_, {})) cuda_.release_plain(device_address(one.memory));
  const CuResult again = cuda_.allocate_plain(&memory, bytes);
  DISTRUN_RETURN_IF_ERROR(check_memory(again, "cuMemAlloc", bytes, "on their way"));
  return Block{.memory = reinterpret_cast<std::byte*>(memory), .bytes = bytes};
}

void Gpu::give_back(Block block) {
  if (block.memory != nullptr) blocks_.push_back(block);
}

Status Gpu::run_kernel(const char* kind, const WireType& wire, const kernels::Finish& how,
                       std::span<const Piece> pieces) {
  Batch like{};
  like.factor = how.factor;
  like.divisor = how.divisor;
  like.scales = how.factor != 1.0 || how.divisor != 1 ? 1 : 0;
  return launch(kind, wire, like, pieces);
}

Status Gpu::combine(const WireType& wire, Combine how, const Piece& piece) {
  Batch like{};
  like.combine = how;
  return launch("combine", wire, like, {&piece, 1});
}

Status Gpu::launch(const char* kind, const WireType& wire, const Batch& like, std::span<const Piece> pieces) {
  CuFunction function = kernels_.at(std::string(kind) + "_" + wire.name);
  while (!pieces.empty()) {
    Batch batch = take_batch(pieces, like);
    if (batch.num_pieces == 0) continue;
    void* parameters[] = {&batch};
    const unsigned blocks = std::min(batch.tile_ends[batch.num_pieces - 1], kMostBlocks);
    DISTRUN_RETURN_IF_ERROR(check(
        cuda_.launch(function, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel"));
  }
  return {};
}

Result<CuEvent> Gpu::event_here() {
  auto event = take_event();
  if (!event.ok()) return event.status();
  const Status recorded = check(cuda_.event_record(*event, stream_), "cuEventRecord");
  if (recorded.ok()) return event;
  give_back(*event);
  return recorded;
}

Result<CuEvent> Gpu::end_of_work() {
  auto event = event_here();
  if (!event.ok()) return event.status();
  void* bell = reinterpret_cast<void*>(static_cast<std::intptr_t>(bell_.get()));
  // Without the bell who watches finds out a little later.
  if (cuda_.stream_wait(notify_, *event, 0) == kCuSuccess) cuda_.launch_host_function(notify_, &ring_bell, bell);
  return event;
}

Result<bool> Gpu::reached(CuEvent event) const {
  const CuResult code = cuda_.event_query(event);
  if (code == kCuNotReady) return false;
  DISTRUN_RETURN_IF_ERROR(check(code, "cuEventQuery"));
  return true;
}

void Gpu::ring() const {
  const eventfd_t one = 1;
  ::eventfd_write(bell_.get(), one);
}

void Gpu::hush() const {
  eventfd_t rung = 0;
  ::eventfd_read(bell_.get(), &rung);
}

}  // namespace distrun::backend::cuda_parts
