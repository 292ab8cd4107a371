#include "runtime/base/types.h"

#include <array>

#include "runtime/base/status.h"

namespace distrun {
namespace {

constexpr DTypeTraits kDTypes[] = {
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, ...) \
  {#name, bytes, DTypeFamily::family, exponent},
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
};
constexpr OpTraits kOperations[] = {
#define DISTRUN_OPERATION(id, number, c_name, name, output, reduces, fuses, has_root, has_splits, lost_by_join) \
  {#name, OpOutput::output, reduces, fuses, has_root, has_splits, lost_by_join},
#include "runtime/base/operations.def"
#undef DISTRUN_OPERATION
};
// traits_of() indexes the tables by number, so row i must have the number i.
#define DISTRUN_DTYPE(id, number, c_name, text, ...) static_assert(kDTypes[number].name == #text);
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
#define DISTRUN_OPERATION(id, number, c_name, text, ...) static_assert(kOperations[number].name == #text);
#include "runtime/base/operations.def"
#undef DISTRUN_OPERATION

constexpr std::array<std::string_view, kNumReduceOps> kReduceOps = {"sum", "average", "min", "max", "product"};

}  // namespace

const DTypeTraits& traits_of(DType dtype) {
  DISTRUN_CHECK(static_cast<int>(dtype) < kNumDTypes, "no such dtype");
  return kDTypes[static_cast<std::size_t>(dtype)];
}

const OpTraits& traits_of(OpKind kind) {
  DISTRUN_CHECK(static_cast<int>(kind) < kNumOpKinds, "no such operation");
  return kOperations[static_cast<std::size_t>(kind)];
}

bool can_reduce(DType dtype, ReduceOp op) {
  const DTypeFamily family = traits_of(dtype).family;
  if (family == DTypeFamily::kComplex) return op != ReduceOp::kMin && op != ReduceOp::kMax;
  return family != DTypeFamily::kMovedOnly;
}

SentAs sent_as(OpKind kind, ReduceOp op, DType dtype) {
  const DTypeTraits& traits = traits_of(dtype);
  if (!traits_of(kind).reduces) {
    return dtype <= DType::kBool ? SentAs{.dtype = dtype} : SentAs{.dtype = DType::kU8, .count = traits.bytes};
  }
  if (traits.family != DTypeFamily::kComplex || op == ReduceOp::kProduct) return {.dtype = dtype};
  return {.dtype = dtype == DType::kC64 ? DType::kF32 : DType::kF64, .count = 2};
}

std::size_t size_of(DType dtype) { return traits_of(dtype).bytes; }
std::string_view name_of(DType dtype) { return traits_of(dtype).name; }
std::string_view name_of(ReduceOp op) { return kReduceOps.at(static_cast<std::size_t>(op)); }
std::string_view name_of(OpKind kind) { return traits_of(kind).name; }
std::string_view name_of(DeviceType type) { return type == DeviceType::kCpu ? "cpu" : "cuda"; }

std::int64_t num_elements(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  return count;
}

std::string to_string(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace distrun
