// The kernels of runtime/backend/cuda/kernels.cu on the CPU.
#pragma once

#include <functional>
#include <string>

#include "runtime/backend/cuda/batch.h"

namespace distrun::test::fake_gpus {

struct FakeKernel {
  std::string name;  // for instance "pack_float32"
  std::function<void(const backend::cuda_parts::Batch&)> run;
};

// Null if kernels.cu has no such kernel.
const FakeKernel* find_kernel(const std::string& symbol);

}  // namespace distrun::test::fake_gpus
