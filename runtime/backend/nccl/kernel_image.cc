#include "runtime/backend/nccl/kernel_image.h"

extern "C" const char kDistrunKernels[];

// DISTRUN_KERNELS_PTX is the file that CMake has nvcc write.
asm(".section .rodata\n"
    ".global kDistrunKernels\n"
    ".hidden kDistrunKernels\n"
    "kDistrunKernels:\n"
    ".incbin \"" DISTRUN_KERNELS_PTX
    "\"\n"
    ".byte 0\n"
    ".previous\n");

namespace distrun::backend::nccl_plugin {

const char* kernel_image() { return kDistrunKernels; }

}  // namespace distrun::backend::nccl_plugin
