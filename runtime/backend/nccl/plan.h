// An operation in NCCL's terms: its type and reduction, whether the tensors pass through a buffer on the device, and
// which work distrun's kernels do. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/backend/cuda/wire_type.h"
#include "runtime/backend/nccl/nccl_api.h"
#include "runtime/backend/plugin/plugin_side.h"

namespace distrun::backend::nccl_plugin {

// The NCCL type that reduces elements of a dtype, after the conversion of wire_type().
NcclType nccl_type(DType dtype);

// For an allreduce or a reducescatter.
struct ReducePlan {
  WireType wire;
  int type = kNcclFloat32;
  int op = kNcclSum;
  bool packs = false;            // the inputs are copied to the buffer, scaled and converted
  bool unpacks = false;          // a kernel makes the outputs from the reduced data
  std::size_t buffer_bytes = 0;  // 0: NCCL works directly on the tensors
  double prescale = 1.0;
  kernels::Finish finish;  // for the unpacking
};
ReducePlan plan_reduce(const distrun_backend_operation& operation, std::size_t members, std::size_t index);

bool all_equal(const std::uint64_t* counts, std::size_t members);

}  // namespace distrun::backend::nccl_plugin
