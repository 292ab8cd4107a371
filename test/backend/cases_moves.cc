// Operations that only move bytes: all-gather, broadcast, barrier.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <thread>

#include "test/backend/ranks.h"
#include "test/backend/reference.h"

namespace distrun::test {
namespace {

using backend::Operation;
using backend::Segment;

constexpr std::byte kCanary{0x5a};
constexpr Sample kRough = {.dtype = DType::kI32, .values = Values::kRough};

Sample sample_of(DType dtype) {
  Sample sample = kRough;
  sample.dtype = dtype;
  return sample;
}

// `offset` shifts the memory off its alignment. In-place: the block is at its position in the output.
struct GatherLayout {
  bool in_place = false;
  std::size_t offset = 0;
};

void allgather(Rank& rank, DType dtype, const std::vector<std::size_t>& counts, GatherLayout layout = {}) {
  if (!rank.offers(OpKind::kAllgather, dtype)) return;
  const std::size_t unit = size_of(dtype);
  Bytes expected;
  std::size_t mine_at = 0;
  for (int member = 0; member < rank.size; ++member) {
    if (member == rank.index) mine_at = expected.size();
    const Bytes block = input_of(sample_of(dtype), member, counts[static_cast<std::size_t>(member)]);
    expected.insert(expected.end(), block.begin(), block.end());
  }
  const std::size_t count = counts[static_cast<std::size_t>(rank.index)];
  const Bytes block = input_of(sample_of(dtype), rank.index, count);
  Bytes out(layout.offset + expected.size() + 1, kCanary);
  Bytes in(layout.offset + block.size() + 1, kCanary);
  std::byte* result = out.data() + layout.offset;
  std::byte* source = layout.in_place ? result + mine_at : in.data() + layout.offset;
  std::copy(block.begin(), block.end(), source);

  const Segment segment = {.in = source, .out = result, .count = count};
  const std::string what = "allgather of " + std::to_string(count) + " x " + std::to_string(unit) + " bytes";
  rank.run({.kind = OpKind::kAllgather, .dtype = dtype, .segments = {&segment, 1}, .counts = counts}, what);
  rank.expect(std::equal(expected.begin(), expected.end(), result), what + ": wrong result");
  rank.expect(out.back() == kCanary, what + ": wrote past the output");
  rank.digest({result, expected.size()});
}

// Broadcasts `lengths` segments from `root`. The root works in-place or out-of-place.
struct Cast {
  DType dtype = DType::kF32;
  int root = 0;
  bool in_place = false;
  std::size_t gap = 0;
};

void broadcast(Rank& rank, const std::vector<std::size_t>& lengths, const Cast& cast) {
  if (!rank.offers(OpKind::kBroadcast, cast.dtype)) return;
  const std::size_t unit = size_of(cast.dtype);
  std::size_t bytes = cast.gap;
  for (const std::size_t length : lengths) bytes += length * unit + cast.gap;
  Bytes in(bytes, kCanary);
  Bytes out(bytes, kCanary);
  Bytes expected(bytes, kCanary);
  std::vector<Segment> segments;
  std::size_t at = cast.gap;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Sample sample = sample_of(cast.dtype);
    sample.seed = 100 + i;
    const Bytes values = input_of(sample, cast.root, lengths[i]);
    std::copy(values.begin(), values.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
    Bytes& holder = cast.in_place ? out : in;
    if (rank.index == cast.root)
      std::copy(values.begin(), values.end(), holder.begin() + static_cast<std::ptrdiff_t>(at));
    segments.push_back({.in = holder.data() + at, .out = out.data() + at, .count = lengths[i]});
    at += values.size() + cast.gap;
  }
  const std::string what = "broadcast from " + std::to_string(cast.root) + " of " + std::to_string(bytes) + " bytes";
  rank.run({.kind = OpKind::kBroadcast, .dtype = cast.dtype, .segments = segments, .root = cast.root}, what);
  rank.expect(out == expected, what + ": wrong result");
  rank.digest(out);
}

// Payload sizes in bytes around each boundary, all multiples of 4.
std::vector<std::size_t> sizes_around_boundaries() {
  std::vector<std::size_t> sizes = {4, 40, 60, 4000};
  for (const std::size_t boundary : subject().boundaries) {
    for (const std::size_t size : {boundary - 4, boundary, boundary + 4, 3 * boundary + 4}) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

TEST_CASE("allgather: equal and uneven counts, some of them zero") {
  for_all_sizes([](Rank& rank) {
    const auto size = static_cast<std::size_t>(rank.size);
    for (const std::size_t bytes : sizes_around_boundaries()) {
      std::vector<std::size_t> counts(size, bytes / 4);
      allgather(rank, DType::kF32, counts);
      allgather(rank, DType::kI32, counts, {.in_place = true});
      for (std::size_t i = 0; i < size; ++i) counts[i] = (i * bytes / 4) / size;
      allgather(rank, DType::kI32, counts, {.offset = 1});
      std::reverse(counts.begin(), counts.end());
      allgather(rank, DType::kI32, counts, {.in_place = true, .offset = 3});
      std::fill(counts.begin(), counts.end(), 0);
      counts[bytes % size] = bytes / 4;
      allgather(rank, DType::kI32, counts);
    }
    allgather(rank, DType::kF32, std::vector<std::size_t>(size, 0));
  });
}

TEST_CASE("allgather: every dtype") {
  for_all_sizes([](Rank& rank) {
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      std::vector<std::size_t> counts;
      for (int i = 0; i < rank.size; ++i) counts.push_back(static_cast<std::size_t>(3 + 5 * i));
      allgather(rank, static_cast<DType>(dtype), counts);
    }
  });
}

TEST_CASE("broadcast: every root, sizes around the boundaries") {
  for_all_sizes([](Rank& rank) {
    for (int root = 0; root < rank.size; ++root) {
      for (const std::size_t bytes : sizes_around_boundaries()) {
        broadcast(rank, {bytes / 4}, {.root = root});
        broadcast(rank, {bytes}, {.dtype = DType::kU8, .root = root, .in_place = true, .gap = 1});
      }
    }
  });
}

TEST_CASE("broadcast: every dtype") {
  for_all_sizes([](Rank& rank) {
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      broadcast(rank, {41}, {.dtype = static_cast<DType>(dtype), .root = rank.size - 1});
    }
  });
}

TEST_CASE("broadcast: many segments, empty ones among them") {
  for_all_sizes([](Rank& rank) {
    if (!rank.backend().capabilities().scatter_gather) return;
    const std::size_t long_one = subject().boundaries.empty() ? 5000 : subject().boundaries.back();
    for (const bool in_place : {false, true}) {
      broadcast(rank, {0, 1, 17, 0, long_one, 3, long_one / 2, 0},
                {.root = rank.size - 1, .in_place = in_place, .gap = 5});
      broadcast(rank, {}, {.in_place = in_place});
      broadcast(rank, {0, 0}, {.in_place = in_place});
    }
  });
}

TEST_CASE("barrier: nobody leaves before all have come") {
  if (subject().launched_as >= 0) return;  // launched processes have no common counter
  for (const int size : group_sizes()) {
    std::atomic<int> arrived{0};
    expect_success(run_ranks(RanksAs::kThreads, size, [&](Rank& rank) {
      if (!rank.offers(OpKind::kBarrier)) return;
      for (int round = 1; round <= 30; ++round) {
        if (round % rank.size == rank.index) std::this_thread::yield();
        ++arrived;
        rank.run({.kind = OpKind::kBarrier}, "barrier");
        rank.expect(arrived.load() >= round * rank.size, "left a barrier before all had come");
      }
    }));
  }
}

}  // namespace distrun::test
