#include "runtime/base/types.h"

#include <array>

namespace distrun {
namespace {

struct DTypeRow {
  std::size_t size;
  std::string_view name;
};

constexpr std::array<DTypeRow, kNumDTypes> kDTypes = {{{1, "uint8"},
                                                       {1, "int8"},
                                                       {2, "int16"},
                                                       {4, "int32"},
                                                       {8, "int64"},
                                                       {2, "float16"},
                                                       {2, "bfloat16"},
                                                       {4, "float32"},
                                                       {8, "float64"},
                                                       {1, "bool"}}};
constexpr std::array<std::string_view, kNumReduceOps> kReduceOps = {"sum", "average", "min", "max", "product"};
constexpr std::array<std::string_view, kNumOpKinds> kOpKinds = {"allreduce", "allgather",     "broadcast", "barrier",
                                                                "alltoall",  "reducescatter", "join"};

}  // namespace

std::size_t size_of(DType dtype) { return kDTypes.at(static_cast<std::size_t>(dtype)).size; }
std::string_view name_of(DType dtype) { return kDTypes.at(static_cast<std::size_t>(dtype)).name; }
std::string_view name_of(ReduceOp op) { return kReduceOps.at(static_cast<std::size_t>(op)); }
std::string_view name_of(OpKind kind) { return kOpKinds.at(static_cast<std::size_t>(kind)); }
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
