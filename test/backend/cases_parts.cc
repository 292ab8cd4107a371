// Operations with a separate part for each member: reduce-scatter and all-to-all.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "test/backend/ranks.h"
#include "test/backend/reference.h"

namespace distrun::test {
namespace {

using backend::Segment;

constexpr std::byte kPastEnd{0x5a};
using Counts = std::vector<std::size_t>;

// Payload sizes in elements of 4 bytes around each boundary.
Counts counts_around_boundaries() {
  Counts counts = {1, 10, 15, 1000};
  for (const std::size_t boundary : subject().boundaries) {
    for (const std::size_t bytes : {boundary - 4, boundary, boundary + 4, 3 * boundary + 4}) {
      counts.push_back(bytes / 4);
    }
  }
  return counts;
}

// The part of every member, with a different size for each. The sum is about `total` elements.
Counts uneven(std::size_t total, std::size_t size) {
  Counts counts(size);
  for (std::size_t i = 0; i < size; ++i) counts[i] = (total * ((i * 7 + 3) % 5)) / (2 * size);
  return counts;
}

void reducescatter(Rank& rank, const Sample& sample, const Counts& counts, std::size_t offset = 0) {
  if (!rank.offers(OpKind::kReducescatter, sample.dtype)) return;
  const std::size_t unit = size_of(sample.dtype);
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto self = static_cast<std::size_t>(rank.index);
  const std::size_t from =
      std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(self), std::size_t{0});
  const Bytes block = input_of(sample, rank.index, total);
  Bytes in(offset * unit + block.size());
  std::copy(block.begin(), block.end(), in.begin() + static_cast<std::ptrdiff_t>(offset * unit));
  Bytes out(counts[self] * unit + 1, kPastEnd);
  const Segment segment = {.in = in.data() + offset * unit, .out = out.data(), .count = total};
  const std::string what = "reducescatter " + describe(sample) + " of " + std::to_string(total) + " elements";
  const bool scales = rank.backend().capabilities().scatter_gather;
  rank.run({.kind = OpKind::kReducescatter,
            .dtype = sample.dtype,
            .segments = {&segment, 1},
            .reduce = sample.op,
            .prescale = scales ? sample.prescale : 1.0,
            .postscale = scales ? sample.postscale : 1.0,
            .counts = counts},
           what);
  Sample expected = sample;
  if (!scales) expected.prescale = expected.postscale = 1.0;
  const std::string wrong =
      difference(expected, rank.size, out.data(), allreduce_of(expected, rank.size, counts[self], from));
  rank.expect(wrong.empty(), what + ": " + wrong);
  rank.expect(out.back() == kPastEnd, what + ": wrote past the output");
  rank.expect(std::equal(block.begin(), block.end(), in.begin() + static_cast<std::ptrdiff_t>(offset * unit)),
              what + ": changed the input");
}

// [i][j] is the number of elements that member i sends to member j.
using Matrix = std::vector<Counts>;

void alltoall(Rank& rank, DType dtype, const Matrix& sent, std::size_t offset = 0) {
  if (!rank.offers(OpKind::kAlltoall, dtype)) return;
  const std::size_t unit = size_of(dtype);
  const auto self = static_cast<std::size_t>(rank.index);
  const Sample sample{.dtype = dtype, .values = Values::kRough};
  Counts flat;
  Bytes expected;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    flat.insert(flat.end(), sent[i].begin(), sent[i].end());
    const std::size_t from =
        std::accumulate(sent[i].begin(), sent[i].begin() + static_cast<std::ptrdiff_t>(self), std::size_t{0});
    const Bytes block = input_of(sample, static_cast<int>(i), sent[i][self], from);
    expected.insert(expected.end(), block.begin(), block.end());
  }
  const std::size_t total = std::accumulate(sent[self].begin(), sent[self].end(), std::size_t{0});
  const Bytes block = input_of(sample, rank.index, total);
  Bytes in(offset * unit + block.size() + 1);
  std::copy(block.begin(), block.end(), in.begin() + static_cast<std::ptrdiff_t>(offset * unit));
  Bytes out(expected.size() + 1, kPastEnd);
  const Segment segment = {.in = in.data() + offset * unit, .out = out.data(), .count = total};
  const std::string what = "alltoall of " + std::to_string(total) + " x " + std::to_string(unit) + " bytes";
  rank.run({.kind = OpKind::kAlltoall, .dtype = dtype, .segments = {&segment, 1}, .counts = flat}, what);
  rank.expect(std::equal(expected.begin(), expected.end(), out.begin()), what + ": wrong result");
  rank.expect(out.back() == kPastEnd, what + ": wrote past the output");
}

Matrix matrix_of(std::size_t size, std::size_t elements, std::size_t kind) {
  Matrix sent(size, Counts(size, elements));
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      if (kind == 1) sent[i][j] = elements * ((i * 3 + j * 5) % 4) / 2;
      if (kind == 2) sent[i][j] = i == 0 && j + 1 == size ? elements : 0;
    }
  }
  return sent;
}

}  // namespace

TEST_CASE("reducescatter: equal and uneven parts, some of them empty") {
  for_all_sizes([](Rank& rank) {
    const auto size = static_cast<std::size_t>(rank.size);
    for (const std::size_t count : counts_around_boundaries()) {
      reducescatter(rank, {}, Counts(size, count));
      reducescatter(rank, {.dtype = DType::kI32, .values = Values::kRough}, uneven(count, size), 1);
      Counts one(size, 0);
      one[count % size] = count;
      reducescatter(rank, {.op = ReduceOp::kAverage}, one);
    }
    reducescatter(rank, {}, Counts(size, 0));
  });
}

TEST_CASE("reducescatter: every dtype, reduction and scale") {
  for_all_sizes([](Rank& rank) {
    const auto size = static_cast<std::size_t>(rank.size);
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      for (int op = 0; op < kNumReduceOps; ++op) {
        Sample sample{.dtype = static_cast<DType>(dtype), .op = static_cast<ReduceOp>(op)};
        if (!can_reduce(sample.dtype, sample.op)) continue;
        reducescatter(rank, sample, uneven(40 * size, size));
        if (sample.dtype == DType::kBool) continue;
        sample.prescale = 2.0;
        sample.postscale = 0.5;
        reducescatter(rank, sample, Counts(size, 33));
      }
    }
  });
}

TEST_CASE("alltoall: equal and uneven blocks, some of them empty") {
  for_all_sizes([](Rank& rank) {
    const auto size = static_cast<std::size_t>(rank.size);
    for (const std::size_t count : counts_around_boundaries()) {
      for (const std::size_t kind : {0U, 1U, 2U}) alltoall(rank, DType::kF32, matrix_of(size, count, kind), kind);
    }
    alltoall(rank, DType::kF32, matrix_of(size, 0, 0));
  });
}

TEST_CASE("alltoall: every dtype") {
  for_all_sizes([](Rank& rank) {
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      alltoall(rank, static_cast<DType>(dtype), matrix_of(static_cast<std::size_t>(rank.size), 37, 1));
    }
  });
}

}  // namespace distrun::test
