// One operation in calls of CUDA and NCCL, on the GPU's stream: wait for the tensors, pack, NCCL, unpack. On the lane's
// thread, with the GPU current; nothing waits.
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
  // `operation` outlives this.
  NcclOperation(Gpu& gpu, const NcclApi& nccl, const distrun_backend_operation& operation, std::size_t members,
                std::size_t index);

  // Everything up to NCCL's calls, which it takes when it can; then, once it has, what comes after them. An error may
  // leave work on the stream: the memory is free at the end of it.
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
  Status grouped(Status calls);  // ends a group of calls, whatever their outcome
  [[nodiscard]] Status check(NcclResult code, const char* call) const;

  Gpu& gpu_;
  const NcclApi& nccl_;
  const distrun_backend_operation& operation_;
  const std::size_t members_;
  const std::size_t index_;
  const std::size_t unit_;  // bytes of an element
  NcclComm comm_ = nullptr;
  ReducePlan plan_;
  std::byte* buffer_ = nullptr;
  std::vector<Piece> outputs_;  // of the unpacking
};

}  // namespace distrun::backend::nccl_plugin
