#include "runtime/backend/nccl/kernel_image.h"

// DISTRUN_NCCL_PTX is the file that CMake has nvcc write.
asm(".section .rodata\n"
    ".global kNcclKernels\n"
    ".hidden kNcclKernels\n"
    "kNcclKernels:\n"
    ".incbin \"" DISTRUN_NCCL_PTX
    "\"\n"
    ".byte 0\n"
    ".previous\n");
