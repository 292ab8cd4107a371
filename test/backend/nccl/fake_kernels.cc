// runtime/backend/cuda/kernels.cu itself, compiled for the CPU. One block with one thread does all the work.
#include "test/backend/nccl/fake_kernels.h"

#include <bit>
#include <cstdint>
#include <map>

#include "runtime/backend/kernels/elements.h"

// The keywords of CUDA that kernels.cu uses.
#define __device__
#define __global__
#define __grid_constant__
#define DISTRUN_UNROLL
namespace {
struct Dimension {
  std::uint32_t x;
};
constexpr Dimension blockIdx{0}, gridDim{1}, threadIdx{0}, blockDim{1};

float float_of_half(std::uint16_t bits) { return distrun::backend::kernels::Float16::widen(bits); }
std::uint16_t half_of_float(float value) { return distrun::backend::kernels::Float16::narrow(value); }
float float_of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of_float(float value) { return std::bit_cast<std::uint32_t>(value); }
}  // namespace
#include "runtime/backend/cuda/kernels.cu"  // NOLINT(bugprone-suspicious-include)

namespace distrun::test::fake_gpus {
namespace {

std::map<std::string, FakeKernel> all_kernels() {
  std::map<std::string, FakeKernel> all;
#define DISTRUN_FAKE_KERNELS(dtype)                                                          \
  all["distrun_pack_" #dtype] = {.name = "pack_" #dtype, .run = distrun_pack_##dtype};       \
  all["distrun_unpack_" #dtype] = {.name = "unpack_" #dtype, .run = distrun_unpack_##dtype}; \
  all["distrun_combine_" #dtype] = {.name = "combine_" #dtype, .run = distrun_combine_##dtype};
  DISTRUN_FAKE_KERNELS(uint8)
  DISTRUN_FAKE_KERNELS(int8)
  DISTRUN_FAKE_KERNELS(int16)
  DISTRUN_FAKE_KERNELS(int32)
  DISTRUN_FAKE_KERNELS(int64)
  DISTRUN_FAKE_KERNELS(float16)
  DISTRUN_FAKE_KERNELS(bfloat16)
  DISTRUN_FAKE_KERNELS(float32)
  DISTRUN_FAKE_KERNELS(float64)
  DISTRUN_FAKE_KERNELS(bool)
  DISTRUN_FAKE_KERNELS(uint16)
  DISTRUN_FAKE_KERNELS(uint32)
  DISTRUN_FAKE_KERNELS(uint64)
#undef DISTRUN_FAKE_KERNELS
  return all;
}

}  // namespace

const FakeKernel* find_kernel(const std::string& symbol) {
  static const std::map<std::string, FakeKernel> all = all_kernels();
  const auto found = all.find(symbol);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace distrun::test::fake_gpus
