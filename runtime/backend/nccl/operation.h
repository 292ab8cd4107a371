// One operation as calls of CUDA and NCCL on the GPU's stream: wait for the tensors, pack, call NCCL, unpack. Only the
// lane's thread calls this, with the GPU current. No call blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/backend/nccl/plan.h"

namespace distrun::backend::nccl_plugin {

inline constexpr std::uint32_t kKinds = 1U << DISTRUN_BACKEND_ALLREDUCE | 1U << DISTRUN_BACKEND_ALLGATHER |
                                        1U << DISTRUN_BACKEND_BROADCAST | 1U << DISTRUN_BACKEND_BARRIER |
                                        1U << DISTRUN_BACKEND_ALLTOALL | 1U << DISTRUN_BACKEND_REDUCESCATTER;

class NcclOperation {
 public:
  // `operation` must outlive this object.
  NcclOperation(Gpu& gpu, const NcclApi& nccl, const distrun_backend_operation& operation, std::size_t members,
                std::size_t index);

  // start() makes all calls up to NCCL's. Call finish() after NCCL has accepted those; it makes the remaining calls. An
  // error may leave work on the stream. The memory is free when that work has ended.
  Status start(NcclComm comm);
  Status finish();

 private:
  Status allreduce();
  Status reducescatter();
  Status reduce_parts(const std::byte* in, std::byte* out);
  Status allgather();
  Status broadcast();
  Status alltoall();
  Status barrier();
  Status pack();
  Status grouped(Status calls);  // ends a group of calls, also after a failed call
  [[nodiscard]] Status check(NcclResult code, const char* call) const;

  Gpu& gpu_;
  const NcclApi& nccl_;
  const distrun_backend_operation& operation_;
  const std::size_t members_;
  const std::size_t index_;
  const std::size_t unit_;  // bytes per element
  NcclComm comm_ = nullptr;
  ReducePlan plan_;
  std::byte* buffer_ = nullptr;
  std::vector<Piece> outputs_;  // pieces to unpack
};

}  // namespace distrun::backend::nccl_plugin
