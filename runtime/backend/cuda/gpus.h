// The GPUs of a plug-in that has no thread for each GPU (nccl has one, see its lanes.h). A GPU is set up on first use
// and kept until the process ends: destructors at the end of the process must not call the driver.
#pragma once

#include <map>
#include <memory>

#include "runtime/backend/cuda/gpu.h"
#include "runtime/base/annotations.h"

namespace distrun::backend::cuda_parts {

class Gpus {
 public:
  // `image`: see Gpu.
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
