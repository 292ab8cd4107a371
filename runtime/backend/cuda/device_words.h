// The functions of kernels.cu that use GPU instructions. When kernels.cu is compiled for the CPU, the test defines its
// own versions before.
#pragma once

#if defined(__CUDACC__)

#include <cstdint>

#define DISTRUN_UNROLL _Pragma("unroll 4")

__device__ inline float float_of_half(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ inline std::uint16_t half_of_float(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ inline float float_of_bits(std::uint32_t bits) { return __uint_as_float(bits); }
__device__ inline std::uint32_t bits_of_float(float value) { return __float_as_uint(value); }

#endif
