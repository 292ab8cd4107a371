// The most important cases again between processes, for fixtures that offer `forked`.
#include <catch2/catch_test_macros.hpp>

#include "test/backend/ranks.h"
#include "test/backend/reference.h"

namespace distrun::test {

TEST_CASE("processes: all-reduces of several sizes between forked processes", "[processes]") {
  REQUIRE(subject().forked);
  const std::size_t large = 8 * subject().boundaries.back() + 1;
  for (const int size : group_sizes()) {
    expect_success(run_ranks(RanksAs::kProcesses, size, [large](Rank& rank) {
      const Sample sample = {.dtype = DType::kF32, .op = ReduceOp::kAverage, .seed = 5};
      const std::size_t counts[] = {1, 100, large};
      std::vector<Bytes> inputs;
      for (const std::size_t count : counts) inputs.push_back(input_of(sample, rank.index, count));
      for (int round = 0; round < 20; ++round) {
        for (std::size_t i = 0; i < std::size(counts); ++i) {
          const std::size_t count = counts[i];
          Bytes data = inputs[i];
          const backend::Segment segment = {.in = data.data(), .out = data.data(), .count = count};
          rank.run({.segments = {&segment, 1}, .reduce = sample.op}, "allreduce");
          if (rank.index == 0 && round % 10 == 0) {  // the digest compares the others with rank 0
            const std::string wrong =
                difference(sample, rank.size, data.data(), allreduce_of(sample, rank.size, count));
            rank.expect(wrong.empty(), wrong);
          }
          rank.digest(data);
        }
      }
    }));
  }
}

}  // namespace distrun::test
