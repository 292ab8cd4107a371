// kernels.cu as PTX, which the driver compiles for the GPU. It ends with a zero byte. Null if the build had no nvcc.
#pragma once

namespace distrun::backend::cuda_parts {

const char* kernel_image();

}  // namespace distrun::backend::cuda_parts
