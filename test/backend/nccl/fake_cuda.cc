// The driver part of the fake.
#include <algorithm>
#include <cstdlib>

#include "runtime/backend/cuda/batch.h"
#include "runtime/backend/kernels/kernels.h"
#include "test/backend/nccl/fake_kernels.h"
#include "test/backend/nccl/fake_world.h"

namespace distrun::test::fake_gpus {
namespace {

using namespace backend::nccl_plugin;  // NOLINT(google-build-using-namespace): this file is that interface

constexpr CuResult kInvalidContext = 201;
constexpr CuResult kCaptureUnsupported = 900;

thread_local std::vector<Device*> current;
thread_local int capture_mode = 0;       // CU_STREAM_CAPTURE_MODE_GLOBAL
thread_local int index_of_current = -1;  // still valid in exit(), when `current` is destroyed

void current_has_changed() { index_of_current = current.empty() ? -1 : current.back()->index; }

std::string name_of(const Stream* stream) {
  if (stream == nullptr) return "s?";
  return "s" + (stream->number == 0 ? std::string("0") : std::to_string(stream->number));
}

// A call that needs a current context and adds work to a stream.
CuResult put(const char* symbol, void* given, const std::string& details, Work work) {
  World& it = world();
  const Lock lock(it.mutex);
  Stream* stream = it.stream_of(given);
  if (const int code = it.note(symbol, name_of(stream) + details); code != 0) return code;
  if (current.empty()) {
    it.fault(std::string(symbol) + " without a current context");
    return kInvalidContext;
  }
  if (stream != nullptr && stream->device != current.back()) it.fault(std::string(symbol) + " on another GPU's stream");
  it.put(stream, std::move(work));
  return kCuSuccess;
}

CuResult plain(const char* symbol, const std::string& details = "") {
  const Lock lock(world().mutex);
  return world().note(symbol, details);
}

// A call in which a real driver may wait until the GPU has finished all its work.
CuResult waits(const char* symbol) {
  World& it = world();
  const Lock lock(it.mutex);
  if (!current.empty() && it.has_collectives(current.back())) it.fault(symbol + std::string(kTooEarly));
  if (it.capturing && capture_mode != kCuCaptureRelaxed) return kCaptureUnsupported;
  return it.note(symbol, "");
}

std::string text_of(const char* prefix, std::size_t value) { return std::string(prefix) + std::to_string(value); }

char* memory(CuPointer pointer) { return reinterpret_cast<char*>(pointer); }

void fill_contexts(CudaApi& api) {
  api.init = [](unsigned) { return plain("cuInit"); };
  api.driver_version = [](int* version) {
    *version = 13000;
    return kCuSuccess;
  };
  api.error_name = [](CuResult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return kCuSuccess;
  };
  api.error_string = [](CuResult, const char** text) {
    *text = "injected";
    return kCuSuccess;
  };
  api.device_get = [](int* device, int ordinal) {
    *device = ordinal;
    return plain("cuDeviceGet", std::to_string(ordinal));
  };
  api.retain_context = [](CuContext* context, int index) {
    const Lock lock(world().mutex);
    auto& device = world().devices[index];
    if (!device) {
      device = std::make_unique<Device>();
      device->index = index;
      device->legacy.device = device.get();
    }
    *context = device.get();
    return world().note("cuDevicePrimaryCtxRetain", std::to_string(index));
  };
  api.push_context = [](CuContext context) {
    current.push_back(static_cast<Device*>(context));
    current_has_changed();
    return kCuSuccess;
  };
  api.pop_context = [](CuContext* context) {
    *context = current.back();
    current.pop_back();
    current_has_changed();
    return kCuSuccess;
  };
}

void fill_streams(CudaApi& api) {
  api.stream_create = [](CuStream* out, unsigned flags) {
    World& it = world();
    const Lock lock(it.mutex);
    auto stream = std::make_unique<Stream>();
    stream->device = current.empty() ? nullptr : current.back();
    stream->number = static_cast<int>(it.streams.size()) + 1;
    *out = stream.get();
    it.streams.push_back(std::move(stream));
    return it.note("cuStreamCreate", flags == kCuStreamNonBlocking ? "non-blocking" : "blocking");
  };
  api.stream_destroy = [](CuStream stream) {
    const Lock lock(world().mutex);
    static_cast<Stream*>(stream)->gone = true;
    return kCuSuccess;
  };
  api.stream_is_capturing = [](CuStream, int* status) {
    const Lock lock(world().mutex);
    *status = world().capturing ? 1 : 0;
    return kCuSuccess;
  };
  api.exchange_capture_mode = [](int* mode) {
    std::swap(*mode, capture_mode);
    return kCuSuccess;
  };
  api.launch_host_function = [](CuStream stream, CuHostFunction* function, void* data) {
    return put("cuLaunchHostFunc", stream, "", [function, data] {
      function(data);
      return true;
    });
  };
}

void fill_events(CudaApi& api) {
  api.event_create = [](CuEvent* out, unsigned flags) {
    World& it = world();
    const Lock lock(it.mutex);
    it.events.push_back(std::make_unique<Event>());
    *out = it.events.back().get();
    return it.note("cuEventCreate", flags == kCuEventDisableTiming ? "" : "with timing");
  };
  api.event_destroy = [](CuEvent event) {
    const Lock lock(world().mutex);
    static_cast<Event*>(event)->gone = true;
    return kCuSuccess;
  };
  api.event_record = [](CuEvent given, CuStream stream) {
    const Lock lock(world().mutex);
    auto* event = static_cast<Event*>(given);
    if (event->gone) world().fault("an event that is gone is recorded");
    const std::uint64_t version = ++event->recorded;
    return put("cuEventRecord", stream, "", [event, version] {
      event->reached = std::max(event->reached, version);
      return true;
    });
  };
  api.stream_wait = [](CuStream stream, CuEvent given, unsigned) {
    const Lock lock(world().mutex);
    auto* event = static_cast<Event*>(given);
    const std::uint64_t version = event->recorded;
    return put("cuStreamWaitEvent", stream, "", [event, version] { return event->reached >= version; });
  };
  api.event_query = [](CuEvent given) -> CuResult {
    const Lock lock(world().mutex);
    const auto* event = static_cast<Event*>(given);
    if (const int code = world().note("cuEventQuery", ""); code != 0) return code;
    if (world().capturing && capture_mode != kCuCaptureRelaxed) return kCaptureUnsupported;
    return event->reached >= event->recorded ? kCuSuccess : kCuNotReady;
  };
}

// Calls that a driver may perform only when the GPU is idle.
void fill_memory_at_rest(CudaApi& api) {
  api.allocate_plain = [](CuPointer* out, std::size_t bytes) {
    const CuResult code = waits("cuMemAlloc");
    if (code == kCuSuccess) *out = reinterpret_cast<CuPointer>(std::calloc(1, bytes));
    return code;
  };
  api.release_plain = [](CuPointer pointer) {
    std::free(memory(pointer));
    return plain("cuMemFree");
  };
  api.host_allocate = [](void** out, std::size_t bytes, unsigned) {
    const CuResult code = waits("cuMemHostAlloc");
    if (code == kCuSuccess) *out = std::calloc(1, bytes);
    return code;
  };
  api.host_release = [](void* memory) {
    std::free(memory);
    return plain("cuMemFreeHost");
  };
}

void fill_memory(CudaApi& api) {
  api.allocate = [](CuPointer* out, std::size_t bytes, CuStream stream) {
    const CuResult code = put("cuMemAllocAsync", stream, text_of(" ", bytes), [] { return true; });
    if (code == kCuSuccess) *out = reinterpret_cast<CuPointer>(std::calloc(1, bytes));
    return code;
  };
  api.release = [](CuPointer pointer, CuStream stream) {
    return put("cuMemFreeAsync", stream, "", [pointer] {
      std::free(memory(pointer));
      return true;
    });
  };
  api.copy = [](CuPointer to, CuPointer from, std::size_t bytes, CuStream stream) {
    return put("cuMemcpyDtoDAsync", stream, text_of(" ", bytes), [to, from, bytes] {
      std::memcpy(memory(to), memory(from), bytes);
      return true;
    });
  };
  api.fill8 = [](CuPointer to, unsigned char value, std::size_t count, CuStream stream) {
    return put("cuMemsetD8Async", stream, text_of(" ", count), [to, value, count] {
      std::memset(memory(to), value, count);
      return true;
    });
  };
  api.fill16 = [](CuPointer to, unsigned short value, std::size_t count, CuStream stream) {
    return put("cuMemsetD16Async", stream, text_of(" ", count), [to, value, count] {
      for (std::size_t i = 0; i < count; ++i) std::memcpy(memory(to) + 2 * i, &value, 2);
      return true;
    });
  };
  api.fill32 = [](CuPointer to, unsigned value, std::size_t count, CuStream stream) {
    return put("cuMemsetD32Async", stream, text_of(" ", count), [to, value, count] {
      for (std::size_t i = 0; i < count; ++i) std::memcpy(memory(to) + 4 * i, &value, 4);
      return true;
    });
  };
  api.fill32_rows = [](CuPointer to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
                       CuStream stream) {
    return put("cuMemsetD2D32Async", stream, text_of(" ", height), [to, pitch, value, width, height] {
      for (std::size_t row = 0; row < height; ++row) {
        for (std::size_t i = 0; i < width; ++i) std::memcpy(memory(to) + row * pitch + 4 * i, &value, 4);
      }
      return true;
    });
  };
}

void fill_kernels(CudaApi& api) {
  api.load_module = [](CuModule* module, const void* image) {
    *module = const_cast<void*>(image);
    return waits("cuModuleLoadData");
  };
  api.unload_module = [](CuModule) { return kCuSuccess; };
  api.get_function = [](CuFunction* function, CuModule, const char* name) -> CuResult {
    *function = const_cast<FakeKernel*>(find_kernel(name));
    const CuResult code = waits("cuModuleGetFunction");
    return *function == nullptr ? 500 : code;
  };
  api.launch = [](CuFunction function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  CuStream stream, void** parameters, void**) -> CuResult {
    const auto* kernel = static_cast<const FakeKernel*>(function);
    const auto batch = std::make_shared<Batch>(*static_cast<const Batch*>(parameters[0]));
    const std::string details = " " + kernel->name + " " + std::to_string(batch->num_pieces) + " pieces";
    if (blocks == 0) world().fault("a launch of no blocks");
    return put("cuLaunchKernel", stream, details, [kernel, batch] {
      kernel->run(*batch);
      return true;
    });
  };
}

}  // namespace

Stream* World::stream_of(void* stream) {
  if (stream != nullptr) return static_cast<Stream*>(stream);
  return current.empty() ? nullptr : &current.back()->legacy;
}

void fill_cuda(CudaApi& api) {
  fill_contexts(api);
  fill_streams(api);
  fill_events(api);
  fill_memory_at_rest(api);
  fill_memory(api);
  fill_kernels(api);
}

int current_gpu() { return index_of_current; }

}  // namespace distrun::test::fake_gpus
