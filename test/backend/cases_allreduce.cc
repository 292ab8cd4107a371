// All-reduce: every dtype and operation, in-place and out-of-place, over many segments and none, at awkward sizes.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "test/backend/ranks.h"
#include "test/backend/reference.h"

namespace distrun::test {
namespace {

using backend::Operation;
using backend::Segment;

constexpr DType kDTypes[] = {DType::kU8,  DType::kI8,   DType::kI16, DType::kI32, DType::kI64,
                             DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kBool,
                             DType::kU16, DType::kU32,  DType::kU64, DType::kC64, DType::kC128};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

// The layout of the elements: `lengths` elements per segment, each segment `gap` bytes after the previous one.
struct Shape {
  std::vector<std::size_t> lengths;
  bool in_place = false;
  std::size_t gap = 0;  // odd: unaligned segments
};

std::size_t total_of(const Shape& shape) {
  std::size_t total = 0;
  for (const std::size_t length : shape.lengths) total += length;
  return total;
}

// The rank's memory for one all-reduce, with canaries in the gaps.
class Buffers {
 public:
  Buffers(const Sample& sample, const Shape& shape, int rank) : sample_(sample), shape_(shape) {
    const std::size_t bytes = total_of(shape) * size_of(sample.dtype) + (shape.lengths.size() + 1) * shape.gap;
    in_.assign(bytes + 1, kCanary);
    out_.assign(bytes + 1, kCanary);
    std::size_t at = shape.gap;
    std::size_t from = 0;
    for (const std::size_t length : shape.lengths) {
      const Bytes input = input_of(sample, rank, length, from);
      std::byte* in = (shape.in_place ? out_.data() : in_.data()) + at;
      std::copy(input.begin(), input.end(), in);
      segments_.push_back({.in = in, .out = out_.data() + at, .count = length});
      at += input.size() + shape.gap;
      from += length;
    }
    input_ = in_;
  }

  [[nodiscard]] std::span<const Segment> segments() const { return segments_; }

  void check(Rank& rank) const {
    std::size_t from = 0;
    const std::byte* end = out_.data();
    for (const Segment& segment : segments_) {
      const std::size_t bytes = segment.count * size_of(sample_.dtype);
      if (rank.index == 0) {  // the digest compares the others with rank 0
        const Bytes expected = allreduce_of(sample_, rank.size, segment.count, from);
        const std::string wrong = difference(sample_, rank.size, segment.out, expected);
        rank.expect(wrong.empty(),
                    "segment of " + std::to_string(segment.count) + " at " + std::to_string(from) + ": " + wrong);
      }
      rank.digest({segment.out, bytes});
      rank.expect(
          std::all_of(end, static_cast<const std::byte*>(segment.out), [](std::byte b) { return b == kCanary; }),
          "bytes before the segment at " + std::to_string(from) + " were written");
      end = segment.out + bytes;
      from += segment.count;
    }
    rank.expect(std::all_of(end, out_.data() + out_.size(), [](std::byte b) { return b == kCanary; }),
                "bytes after the last segment were written");
    rank.expect(in_ == input_, "the input was written");
  }

 private:
  static constexpr std::byte kCanary{0xa5};
  const Sample sample_;
  const Shape shape_;
  Bytes in_;
  Bytes input_;
  Bytes out_;
  std::vector<Segment> segments_;
};

bool offered(Rank& rank, const Sample& sample) {
  const backend::Capabilities& can = rank.backend().capabilities();
  const bool scales = sample.prescale != 1.0 || sample.postscale != 1.0;
  return ((can.dtypes >> static_cast<unsigned>(sample.dtype)) & 1U) != 0 && (can.scatter_gather || !scales);
}

void allreduce(Rank& rank, const Sample& sample, const Shape& shape) {
  if (!offered(rank, sample) || !can_reduce(sample.dtype, sample.op)) return;
  const Buffers buffers(sample, shape, rank.index);
  const Operation operation = {.kind = OpKind::kAllreduce,
                               .dtype = sample.dtype,
                               .segments = buffers.segments(),
                               .reduce = sample.op,
                               .prescale = sample.prescale,
                               .postscale = sample.postscale};
  rank.run(operation, describe(sample));
  buffers.check(rank);
}

// Sizes in elements around each boundary of the backend, in elements of the dtype.
std::vector<std::size_t> sizes_around_boundaries(DType dtype) {
  std::vector<std::size_t> sizes;
  for (const std::size_t boundary : subject().boundaries) {
    const std::size_t whole = boundary / size_of(dtype);
    for (const std::size_t size : {whole - 1, whole, whole + 1, 2 * whole + 1}) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

TEST_CASE("allreduce: every dtype and operation, in and out of place") {
  for_all_sizes([](Rank& rank) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        const Sample sample = {.dtype = dtype, .op = op};
        for (const std::size_t count : {1U, 7U, 1000U}) {
          allreduce(rank, sample, {.lengths = {count}});
          allreduce(rank, sample, {.lengths = {count}, .in_place = true});
        }
      }
    }
  });
}

TEST_CASE("allreduce: any values, and integers that wrap around") {
  for_all_sizes([](Rank& rank) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        allreduce(rank, {.dtype = dtype, .op = op, .values = Values::kRough, .seed = 3}, {.lengths = {777}});
      }
    }
  });
}

TEST_CASE("allreduce: prescale and postscale") {
  for_all_sizes([](Rank& rank) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
        Sample sample = {.dtype = dtype, .op = op, .prescale = 0.5, .postscale = 2.0, .seed = 7};
        allreduce(rank, sample, {.lengths = {513}});
        allreduce(rank, sample, {.lengths = {3}, .in_place = true});
        sample.prescale = 1.0;
        allreduce(rank, sample, {.lengths = {513}, .in_place = true});
        sample = {.dtype = dtype, .op = op, .prescale = -0.25, .seed = 7};
        allreduce(rank, sample, {.lengths = {513}});
      }
    }
  });
}

TEST_CASE("allreduce: sizes around the backend's boundaries") {
  for_all_sizes([](Rank& rank) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8}) {
      for (const std::size_t count : sizes_around_boundaries(dtype)) {
        allreduce(rank, {.dtype = dtype, .seed = count}, {.lengths = {count}, .in_place = count % 2 == 0});
        allreduce(rank, {.dtype = dtype, .seed = count}, {.lengths = {count}, .gap = 3});
      }
    }
  });
}

TEST_CASE("allreduce: many segments, empty ones among them, none of them aligned") {
  for_all_sizes([](Rank& rank) {
    if (!rank.backend().capabilities().scatter_gather) return;
    const std::size_t long_one = subject().boundaries.empty() ? 5000 : subject().boundaries.back();
    const std::vector<std::size_t> lengths = {0, 1, 3, 17, 0, 0, long_one, 2, 1000, 1, 0, 255, long_one / 3, 64, 0};
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kI8}) {
      for (const bool in_place : {false, true}) {
        allreduce(rank, {.dtype = dtype, .op = ReduceOp::kAverage},
                  {.lengths = lengths, .in_place = in_place, .gap = 1});
        allreduce(rank, {.dtype = dtype},
                  {.lengths = std::vector<std::size_t>(300, 5), .in_place = in_place, .gap = 7});
      }
    }
  });
}

TEST_CASE("allreduce: nothing at all") {
  for_all_sizes([](Rank& rank) {
    allreduce(rank, {}, {});
    allreduce(rank, {}, {.lengths = {0}});
    allreduce(rank, {}, {.lengths = {0}, .in_place = true});
    if (rank.backend().capabilities().scatter_gather) allreduce(rank, {}, {.lengths = {0, 0, 0}});
    allreduce(rank, {}, {.lengths = {5}});  // the group still works
  });
}

TEST_CASE("allreduce: the same bits on every rank and in every run") {
  for (const int size : group_sizes()) {
    const Scenario scenario = [](Rank& rank) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
        for (const std::size_t count : {5U, 300U, 20011U}) {
          allreduce(rank, {.dtype = dtype, .values = Values::kRough, .seed = 11}, {.lengths = {count}});
        }
      }
    };
    const std::uint64_t first = expect_success(run_ranks(RanksAs::kThreads, size, scenario));
    CHECK(expect_success(run_ranks(RanksAs::kThreads, size, scenario)) == first);
  }
}

TEST_CASE("allreduce: infinities and NaN arrive on every rank") {
  for_all_sizes([](Rank& rank) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
        if (!offered(rank, {.dtype = dtype, .op = op})) continue;
        const bool last = rank.index == rank.size - 1;
        Bytes data(3 * size_of(dtype));
        store(dtype, data.data(), 0, last ? std::numeric_limits<double>::quiet_NaN() : 1.0);
        store(dtype, data.data(), 1, rank.index == 0 ? std::numeric_limits<double>::infinity() : 1.0);
        store(dtype, data.data(), 2, 1.0);
        const Segment segment = {.in = data.data(), .out = data.data(), .count = 3};
        rank.run({.dtype = dtype, .segments = {&segment, 1}, .reduce = op}, "special values");
        rank.expect(std::isnan(load(dtype, data.data(), 0)), describe({.dtype = dtype, .op = op}) + " lost a NaN");
        const bool infinite = op != ReduceOp::kMin || rank.size == 1;
        rank.expect(std::isinf(load(dtype, data.data(), 1)) == infinite, "wrong infinity");
        rank.expect(std::isfinite(load(dtype, data.data(), 2)), "a finite element became special");
      }
    }
  });
}

}  // namespace distrun::test
