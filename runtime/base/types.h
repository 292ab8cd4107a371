// Basic types of the runtime: dtypes, shapes, devices, reductions and operations. Values only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun {

enum class DType : std::uint8_t {
#define DISTRUN_DTYPE(id, number, ...) k##id = number,
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
};
#define DISTRUN_DTYPE(...) +1
inline constexpr int kNumDTypes =
#include "runtime/base/dtypes.def"
    ;
#undef DISTRUN_DTYPE

enum class DTypeFamily : std::uint8_t { kUnsigned, kSigned, kFloat, kBool, kComplex, kMovedOnly };

// The numeric values are part of the C API and of the wire format: append, never renumber.
enum class ReduceOp : std::uint8_t { kSum = 0, kAverage = 1, kMin = 2, kMax = 3, kProduct = 4 };
inline constexpr int kNumReduceOps = 5;

enum class OpKind : std::uint8_t {
#define DISTRUN_OPERATION(id, number, ...) k##id = number,
#include "runtime/base/operations.def"
#undef DISTRUN_OPERATION
};
#define DISTRUN_OPERATION(...) +1
inline constexpr int kNumOpKinds =
#include "runtime/base/operations.def"
    ;
#undef DISTRUN_OPERATION

enum class OpOutput : std::uint8_t {
  kNone,      // moves no data; the members only agree on it
  kAsInput,   // shape of the input; may be the input's memory
  kGathered,  // the runtime allocates it; dimension 0 may differ per rank, and the result has the rows of all
  kShare,     // this rank's rows of a result that has the input's shape; never the input's memory
};

enum class DeviceType : std::uint8_t { kCpu = 0, kCuda = 1 };
inline constexpr std::array kDeviceTypes = {DeviceType::kCpu, DeviceType::kCuda};

struct Device {
  DeviceType type = DeviceType::kCpu;
  std::int16_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

using Shape = std::vector<std::int64_t>;

struct DTypeTraits {
  std::string_view name;  // "float32", NumPy's spelling
  std::size_t bytes;      // of one element
  DTypeFamily family;
  int exponent;  // bits of the exponent of a float; 0 for other families
};
const DTypeTraits& traits_of(DType dtype);

// The columns of operations.def. That file explains them.
struct OpTraits {
  std::string_view name;
  OpOutput output;
  bool reduces;
  bool fuses;
  bool has_root;
  bool has_splits;
  std::string_view lost_by_join;
};
const OpTraits& traits_of(OpKind kind);

// Whether the reduction is defined: complex numbers have no order, and kMovedOnly has no arithmetic.
bool can_reduce(DType dtype, ReduceOp op);

// How backends see the elements of an operation: each one as `count` elements of `dtype`. So a backend needs only the
// numbers. Sums of complex numbers are sums of floats, and what is only moved is moved as bytes, except the dtypes that
// plug-ins have always known. `op` matters for reductions only.
struct SentAs {
  DType dtype = DType::kU8;
  std::size_t count = 1;
};
SentAs sent_as(OpKind kind, ReduceOp op, DType dtype);

std::size_t size_of(DType dtype);                                // bytes of one element
std::string_view name_of(DType dtype);                           // "float32", NumPy's spelling
std::string_view name_of(ReduceOp op);                           // "sum"
std::string_view name_of(OpKind kind);                           // "allreduce"
std::string_view name_of(DeviceType type);                       // "cpu"
std::int64_t num_elements(std::span<const std::int64_t> shape);  // 1 for a 0-d shape
std::string to_string(std::span<const std::int64_t> shape);      // "(3, 4)"

}  // namespace distrun
