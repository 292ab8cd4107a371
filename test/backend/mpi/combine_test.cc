// Compares combine() of kernels.cu with the host's kernels, bit for bit, for the type in which each dtype is reduced.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/backend/cuda/wire_type.h"
#include "runtime/backend/kernels/kernels.h"
#include "test/backend/nccl/fake_kernels.h"

namespace distrun::backend::mpi_plugin {
namespace {

struct Pair {
  cuda_parts::Combine combine;
  ReduceOp op;
};
constexpr Pair kPairs[] = {{cuda_parts::kCombineSum, ReduceOp::kSum},
                           {cuda_parts::kCombineProduct, ReduceOp::kProduct},
                           {cuda_parts::kCombineMin, ReduceOp::kMin},
                           {cuda_parts::kCombineMax, ReduceOp::kMax}};
constexpr std::size_t kCount = 3 * cuda_parts::kTileElements + 7;

// The dtype that is reduced instead of `dtype`.
DType reduced_as(DType dtype) {
  if (dtype == DType::kI16) return DType::kI32;
  if (dtype == DType::kU16) return DType::kU32;
  return dtype == DType::kBool ? DType::kU8 : dtype;
}

std::vector<std::byte> any_bits(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> made(bytes);
  for (std::byte& one : made) one = static_cast<std::byte>(random());
  return made;
}

template <class T>
T element(const std::byte* from, std::size_t i) {
  T value{};
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

bool is_nan(DType dtype, const std::byte* from, std::size_t i) {
  switch (dtype) {
    case DType::kF16:
      return (element<std::uint16_t>(from, i) & 0x7fff) > 0x7c00;
    case DType::kBF16:
      return (element<std::uint16_t>(from, i) & 0x7fff) > 0x7f80;
    case DType::kF32:
      return std::isnan(element<float>(from, i));
    case DType::kF64:
      return std::isnan(element<double>(from, i));
    default:
      return false;
  }
}

// Equal elements, or two NaNs: the bits of a NaN are not specified.
bool alike(DType dtype, const std::byte* a, const std::byte* b, std::size_t i) {
  const std::size_t unit = size_of(dtype);
  return std::memcmp(a + i * unit, b + i * unit, unit) == 0 || (is_nan(dtype, a, i) && is_nan(dtype, b, i));
}

}  // namespace

TEST_CASE("mpi on GPUs: what the kernel adds is what the host adds, whatever the bits") {
  for (int number = 0; number < kNumDTypes; ++number) {
    const auto dtype = static_cast<DType>(number);
    if (!can_reduce(dtype, ReduceOp::kMin)) continue;  // no kernels
    const DType as = reduced_as(dtype);
    const cuda_parts::WireType wire = cuda_parts::wire_type(dtype);
    REQUIRE(wire.bytes == size_of(as));
    const auto* kernel = test::fake_gpus::find_kernel(std::string("distrun_combine_") + wire.name);
    REQUIRE(kernel != nullptr);
    for (const Pair& pair : kPairs) {
      const auto came = any_bits(kCount * wire.bytes, static_cast<unsigned>(number) + 1);
      auto here = any_bits(kCount * wire.bytes, static_cast<unsigned>(number) + 100);
      std::vector<std::byte> expected(here.size());
      const std::array<const std::byte*, 2> sources = {came.data(), here.data()};
      kernels::reduce({.dtype = as, .op = pair.op, .finish = {}}, sources, expected.data(), kCount);
      cuda_parts::Batch batch{};
      batch.pieces[0] = {.from = came.data(), .to = here.data(), .count = kCount};
      batch.tile_ends[0] = 4;
      batch.num_pieces = 1;
      batch.combine = pair.combine;
      kernel->run(batch);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kCount; ++i) wrong += alike(as, here.data(), expected.data(), i) ? 0U : 1U;
      INFO(wire.name << ", operation " << static_cast<int>(pair.op));
      CHECK(wrong == 0);
    }
  }
}

}  // namespace distrun::backend::mpi_plugin
