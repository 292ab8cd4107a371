#include "runtime/backend/backend.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "runtime/backend/factory.h"
#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend {

namespace {

// TensorFlow and JAX require this alignment for memory that they adopt without a copy.
constexpr std::align_val_t kAlignment{64};

}  // namespace

Status Backend::can(OpKind kind, DType dtype) const {
  const auto offers = [](std::uint32_t mask, auto value) { return (mask >> static_cast<unsigned>(value) & 1U) != 0; };
  if (offers(capabilities().ops, kind) && offers(capabilities().dtypes, dtype)) return {};
  return {Errc::kUnsupported, "the backend " + std::string(name()) + " has no " + std::string(name_of(kind)) + " of " +
                                  std::string(name_of(dtype)) + ". Choose another backend, or convert the tensor"};
}

Result<Memory> Backend::allocate(Device device, std::size_t bytes, std::span<const std::byte> element) {
  if (device.type != DeviceType::kCpu) {
    return Status(Errc::kUnsupported, "the backend " + std::string(name()) + " cannot allocate memory of " +
                                          std::string(name_of(device.type)));
  }
  const Memory memory(static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow)),
                      [](std::byte* address) { ::operator delete(address, kAlignment); });
  if (!memory) return Status(Errc::kOutOfMemory, "no memory for " + std::to_string(bytes) + " bytes");
  for (std::size_t at = 0; at < bytes && !element.empty(); at += element.size()) {
    std::memcpy(memory.get() + at, element.data(), std::min(element.size(), bytes - at));
  }
  return memory;
}

Result<Memory> Backend::stage(Device device, std::size_t bytes) { return allocate(device, bytes, {}); }

Result<std::shared_ptr<void>> Factory::mark(Device device, void*) const {
  return Status(Errc::kUnsupported,
                "the backend " + std::string(name()) + " has no streams of " + std::string(name_of(device.type)));
}

const Factory* find_factory(const Factories& factories, std::string_view name) {
  const auto found = std::ranges::find(factories, name, [](const auto& one) { return one->name(); });
  return found == factories.end() ? nullptr : found->get();
}

void scale(DType dtype, double factor, const std::byte* in, std::byte* out, std::size_t count) {
  kernels::scale(dtype, factor, in, out, count);
}

void finish(DType dtype, ReduceOp reduce, double postscale, std::size_t members, const std::byte* in, std::byte* out,
            std::size_t count) {
  const kernels::Reduction what{.dtype = dtype, .finish = kernels::finish_of(reduce, postscale, members)};
  kernels::reduce(what, {&in, 1}, out, count);
}

Result<std::unique_ptr<std::byte[]>> make_buffer(std::size_t bytes, std::string_view what) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (!memory) {
    return Status(Errc::kOutOfMemory, "no memory for the " + std::to_string(bytes) + " bytes of " + std::string(what));
  }
  return memory;
}

}  // namespace distrun::backend
