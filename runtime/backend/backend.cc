#include "runtime/backend/backend.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "runtime/backend/factory.h"
#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend {

Result<Memory> Backend::allocate(Device device, std::size_t bytes, std::span<const std::byte> element) {
  if (device.type != DeviceType::kCpu) {
    return Status(Errc::kUnsupported,
                  "the backend " + std::string(name()) + " has no memory of " + std::string(name_of(device.type)));
  }
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (!memory) return Status(Errc::kOutOfMemory, "no memory for " + std::to_string(bytes) + " bytes");
  for (std::size_t at = 0; at < bytes && !element.empty(); at += element.size()) {
    std::memcpy(memory.get() + at, element.data(), std::min(element.size(), bytes - at));
  }
  return Memory(memory.release(), std::default_delete<std::byte[]>());
}

Result<std::shared_ptr<void>> Factory::mark(Device device, void*) const {
  return Status(Errc::kUnsupported,
                "the backend " + std::string(name()) + " knows no streams of " + std::string(name_of(device.type)));
}

const Factory* find_factory(const Factories& factories, std::string_view name) {
  const auto found = std::ranges::find(factories, name, [](const auto& one) { return one->name(); });
  return found == factories.end() ? nullptr : found->get();
}

void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count) {
  kernels::scale(dtype, factor, in, out, count);
}

}  // namespace distrun::backend
