// kernels.cu as PTX, which the driver compiles for the GPU at hand. Ends with a zero byte; null where there was no nvcc
// to build it.
#pragma once

namespace distrun::backend::cuda_parts {

const char* kernel_image();

}  // namespace distrun::backend::cuda_parts
