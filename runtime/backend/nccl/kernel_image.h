// kernels.cu as PTX, which the driver compiles for the GPU at hand. Ends with a zero byte.
#pragma once

namespace distrun::backend::nccl_plugin {

const char* kernel_image();

}  // namespace distrun::backend::nccl_plugin
