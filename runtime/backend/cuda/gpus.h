// The GPUs of a plug-in that has no threads for them (lanes.h of nccl has). Set up on first use, kept until the process
// ends: the driver must not be called from a destructor of the process's end.
#pragma once

#include <map>
#include <memory>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/base/annotations.h"

namespace distrun::backend::cuda_parts {

class Gpus {
 public:
  // `image` as in Gpu.
  Gpus(const CudaApi& cuda, const char* image) : cuda_(cuda), image_(image) {}
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  Result<Gpu*> gpu(int index) {  // any thread
    const MutexLock lock(mutex_);
    if (const auto found = gpus_.find(index); found != gpus_.end()) return found->second.get();
    auto opened = Gpu::open(cuda_, index, image_);
    if (!opened.ok()) return opened.status();
    return (gpus_[index] = *std::move(opened)).get();
  }

 private:
  const CudaApi cuda_;
  const char* const image_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<Gpu>> gpus_ DISTRUN_GUARDED_BY(mutex_);
};

}  // namespace distrun::backend::cuda_parts
