// kernels.cu as PTX, which the driver compiles for the GPU at hand. Ends with a zero byte.
#pragma once

extern "C" const char kNcclKernels[];
