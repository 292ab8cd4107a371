#include "runtime/backend/cuda/kernel_image.h"

#if defined(DISTRUN_KERNELS_PTX)  // the file that nvcc writes, called by CMake
extern "C" const char kDistrunKernels[];

asm(".section .rodata\n"
    ".global kDistrunKernels\n"
    ".hidden kDistrunKernels\n"
    "kDistrunKernels:\n"
    ".incbin \"" DISTRUN_KERNELS_PTX
    "\"\n"
    ".byte 0\n"
    ".previous\n");
#endif

namespace distrun::backend::cuda_parts {

const char* kernel_image() {
#if defined(DISTRUN_KERNELS_PTX)
  return kDistrunKernels;
#else
  return nullptr;
#endif
}

}  // namespace distrun::backend::cuda_parts
