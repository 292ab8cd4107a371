#include "runtime/backend/nccl/plan.h"

#include <algorithm>

namespace distrun::backend::nccl_plugin {
namespace {

// For bool: the logical or (or the logical and) of all members' values. The kernels make sure that they are 0 or 1.
int nccl_op(DType dtype, ReduceOp reduce) {
  const bool is_bool = dtype == DType::kBool;
  switch (reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return is_bool ? kNcclMax : kNcclSum;
    case ReduceOp::kMin:
      return kNcclMin;
    case ReduceOp::kMax:
      return kNcclMax;
    case ReduceOp::kProduct:
      return is_bool ? kNcclMin : kNcclProduct;
  }
  return kNcclSum;
}

bool changes_something(const kernels::Finish& finish) { return finish.factor != 1.0 || finish.divisor != 1; }

}  // namespace

NcclType nccl_type(DType dtype) {
  constexpr NcclType kTypes[] = {
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, nccl, ...) kNccl##nccl,
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
  };
  return kTypes[static_cast<std::size_t>(dtype)];
}

ReducePlan plan_reduce(const distrun_backend_operation& operation, std::size_t members, std::size_t index) {
  const DType dtype = plugin::dtype_of(operation);
  const ReduceOp reduce = plugin::reduce_of(operation);
  ReducePlan plan;
  plan.wire = wire_type(dtype);
  plan.type = nccl_type(dtype);
  plan.op = nccl_op(dtype, reduce);
  if (dtype != DType::kBool) {
    plan.prescale = operation.prescale;
    plan.finish = kernels::finish_of(reduce, operation.postscale, members);
  }
  plan.packs = operation.num_segments > 1 || plan.wire.converts || plan.prescale != 1.0;
  // This saves a pass over the result. Floats only: NCCL divides integers too, but not always toward zero.
  if (reduce == ReduceOp::kAverage && plan.wire.is_float && !plan.packs && operation.postscale == 1.0) {
    plan.op = kNcclAverage;
    plan.finish = {};
  }
  const bool scatters = traits_of(plugin::kind_of(operation)).output == OpOutput::kShare;
  plan.unpacks = plan.wire.converts || changes_something(plan.finish) || (plan.packs && !scatters);
  if (!plan.packs) return plan;
  const std::size_t share = scatters && plan.wire.converts ? operation.counts[index] : 0;
  plan.buffer_bytes = (total_count(operation) + share) * plan.wire.bytes;
  return plan;
}

bool all_equal(const std::uint64_t* counts, std::size_t members) {
  return std::all_of(counts, counts + members, [counts](std::uint64_t count) { return count == counts[0]; });
}

}  // namespace distrun::backend::nccl_plugin
