// Inputs that every rank can compute for all ranks, and the expected results of the operations. It is plain scalar code
// that shares nothing with the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/types.h"

namespace distrun::test {

// Exact: small values, for which every order of summation and every intermediate rounding gives the same result. Rough:
// any values; results agree within a few roundings.
enum class Values { kExact, kRough };

struct Sample {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  Values values = Values::kExact;
  std::uint64_t seed = 1;
};
std::string describe(const Sample& sample);

using Bytes = std::vector<std::byte>;

// Elements [from, from + count) of `rank`'s input.
Bytes input_of(const Sample& sample, int rank, std::size_t count, std::size_t from = 0);
Bytes allreduce_of(const Sample& sample, int ranks, std::size_t count, std::size_t from = 0);

// Empty if `got` is as expected: bit for bit for exact samples of integers, otherwise within rounding.
std::string difference(const Sample& sample, int ranks, const std::byte* got, const Bytes& expected);

// One element, as a double.
double load(DType dtype, const std::byte* from, std::size_t i);
void store(DType dtype, std::byte* to, std::size_t i, double value);

}  // namespace distrun::test
