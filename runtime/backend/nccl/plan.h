// What an operation is in NCCL's terms: which type and reduction stand for ours, whether the tensors pass through a
// buffer on the device, and what is left to our kernels. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/backend/cuda/wire_type.h"
#include "runtime/backend/nccl/nccl_api.h"
#include "runtime/backend/plugin/guest.h"

namespace distrun::backend::nccl_plugin {

// What NCCL reduces elements of a dtype as: what wire_type() makes of them.
NcclType nccl_type(DType dtype);

// An allreduce or a reducescatter.
struct ReducePlan {
  WireType wire;
  int type = kNcclFloat32;
  int op = kNcclSum;
  bool packs = false;            // inputs are copied into the buffer, scaled and converted
  bool unpacks = false;          // a kernel makes the outputs of what was reduced
  std::size_t buffer_bytes = 0;  // 0: NCCL works on the tensors themselves
  double prescale = 1.0;
  kernels::Finish finish;  // of the unpacking
};
ReducePlan plan_reduce(const distrun_backend_operation& operation, std::size_t members, std::size_t index);

bool all_equal(const std::uint64_t* counts, std::size_t members);

}  // namespace distrun::backend::nccl_plugin
