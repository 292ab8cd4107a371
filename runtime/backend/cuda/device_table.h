// The part of a plug-in's table for a device's memory and streams.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::cuda_parts {

// `find` returns the GPU with this number, and sets it up on first use. Thread-safe.
template <Result<Gpu*> (*find)(std::int32_t device)>
struct DeviceTable {
  // Stores the result of `make` for the GPU, or returns the code of its error.
  template <class Make>
  static std::int32_t hand_over(std::int32_t device, void** out, char* error, std::uint64_t error_size, Make make) {
    auto gpu = find(device);
    if (!gpu.ok()) return plugin::answer(gpu.status(), error, error_size);
    auto made = make(**gpu);
    if (!made.ok()) return plugin::answer(made.status(), error, error_size);
    *out = *made;
    return DISTRUN_BACKEND_OK;
  }

  static std::int32_t mark(std::int32_t device, void* stream, void** out, char* error, std::uint64_t error_size) {
    return hand_over(device, out, error, error_size, [stream](Gpu& gpu) -> Result<void*> {
      auto made = gpu.mark(stream);
      if (!made.ok()) return made.status();
      return (*std::move(made)).release();
    });
  }

  static void unmark(void* given) {
    std::unique_ptr<Mark> owned(static_cast<Mark*>(given));
    Gpu* its = owned->gpu;
    its->unmark(std::move(owned));
  }

  static std::int32_t allocate(std::int32_t device, std::uint64_t size, const void* element, std::uint64_t element_size,
                               void** memory, char* error, std::uint64_t error_size) {
    return hand_over(device, memory, error, error_size, [&](Gpu& gpu) {
      return gpu.allocate(size, {static_cast<const std::byte*>(element), element_size});
    });
  }

  static void release(std::int32_t device, void* memory) {
    if (auto its = find(device); its.ok()) (*its)->release(memory);
  }

  static std::int32_t stage(std::int32_t device, std::uint64_t size, void** memory, char* error,
                            std::uint64_t error_size) {
    return hand_over(device, memory, error, error_size, [size](Gpu& gpu) { return gpu.stage(size); });
  }

  static void unstage(std::int32_t device, void* memory) {
    if (auto its = find(device); its.ok()) (*its)->unstage(memory);
  }

  static constexpr distrun_backend_device kTable = {.struct_size = sizeof(distrun_backend_device),
                                                    .reserved = 0,
                                                    .mark = mark,
                                                    .unmark = unmark,
                                                    .allocate = allocate,
                                                    .release = release,
                                                    .stage = stage,
                                                    .unstage = unstage};
};

}  // namespace distrun::backend::cuda_parts
