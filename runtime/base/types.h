// The words everybody uses: what a tensor is made of and which operations exist. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun {

// The numeric values are part of the C API and of the wire format: append, never renumber.
enum class DType : std::uint8_t {
  kU8 = 0,
  kI8 = 1,
  kI16 = 2,
  kI32 = 3,
  kI64 = 4,
  kF16 = 5,
  kBF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBool = 9,
};
inline constexpr int kNumDTypes = 10;

enum class ReduceOp : std::uint8_t { kSum = 0, kAverage = 1, kMin = 2, kMax = 3, kProduct = 4 };
inline constexpr int kNumReduceOps = 5;

enum class OpKind : std::uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kAlltoall = 4,
  kReducescatter = 5,
  kJoin = 6,  // no data: agreement alone, as a barrier
};
inline constexpr int kNumOpKinds = 7;

enum class DeviceType : std::uint8_t { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  std::int16_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

using Shape = std::vector<std::int64_t>;

std::size_t size_of(DType dtype);                                // bytes of one element
std::string_view name_of(DType dtype);                           // "float32", as NumPy spells it
std::string_view name_of(ReduceOp op);                           // "sum"
std::string_view name_of(OpKind kind);                           // "allreduce"
std::string_view name_of(DeviceType type);                       // "cpu"
std::int64_t num_elements(std::span<const std::int64_t> shape);  // 1 for a 0-d shape
std::string to_string(std::span<const std::int64_t> shape);      // "(3, 4)"

}  // namespace distrun
