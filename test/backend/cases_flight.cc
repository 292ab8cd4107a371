// Several operations in flight, and the guarantees of abort().
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <thread>

#include "test/backend/ranks.h"
#include "test/backend/reference.h"

namespace distrun::test {
namespace {

using backend::Operation;
using backend::Segment;

const Sample kSample = {.dtype = DType::kF32, .seed = 5};

// An in-place all-reduce that owns its memory. Another `seed` gives other values, so the sums are wrong if operations
// are mixed up.
struct Flight {
  Flight(int rank, std::size_t count_in, std::uint64_t seed = 5)
      : sample{.dtype = DType::kF32, .seed = seed}, count(count_in), data(input_of(sample, rank, count_in)) {
    segment = {.in = data.data(), .out = data.data(), .count = count};
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  [[nodiscard]] Operation operation() const { return {.dtype = DType::kF32, .segments = {&segment, 1}}; }

  void check(Rank& rank) const {
    const std::string wrong = difference(sample, rank.size, data.data(), allreduce_of(sample, rank.size, count));
    rank.expect(wrong.empty(), wrong);
  }

  Sample sample;
  std::size_t count;
  Bytes data;
  Segment segment;
};

std::size_t large_count() {
  const auto& boundaries = subject().boundaries;
  return boundaries.empty() ? 10000 : 6 * boundaries.back() / 4 + 1;
}

const Status kWhy(Errc::kRankLost, "rank 7 on node9 was killed");

bool is_why(const Status& status) { return status.code() == kWhy.code() && status.message() == kWhy.message(); }

}  // namespace

TEST_CASE("flight: many operations of different kinds at once") {
  for_all_sizes([](Rank& rank) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<Flight>> flights;
      std::vector<std::uint64_t> tokens;
      for (const std::size_t count : {1U, 5000U, 3U, 0U, 20U, 12000U, 700U, 2U, 2U, 2U}) {
        flights.push_back(std::make_unique<Flight>(rank.index, count, flights.size()));
        tokens.push_back(rank.start(flights.back()->operation()));
      }
      Bytes cast = input_of(kSample, 0, 3000);
      if (rank.index != rank.size - 1) std::fill(cast.begin(), cast.end(), std::byte{0});
      const Segment segment = {.in = cast.data(), .out = cast.data(), .count = 3000};
      tokens.push_back(rank.start({.kind = OpKind::kBroadcast, .segments = {&segment, 1}, .root = rank.size - 1}));
      const Flight last(rank.index, 9);
      tokens.push_back(rank.start(last.operation()));

      auto statuses = rank.finish();
      for (const std::uint64_t token : tokens) {
        rank.expect(statuses.count(token) == 1 && statuses[token].ok(), "token " + std::to_string(token) + " failed");
      }
      for (const auto& flight : flights) flight->check(rank);
      rank.expect(cast == input_of(kSample, 0, 3000), "wrong broadcast");
    }
  });
}

TEST_CASE("flight: started one by one while others are on their way") {
  for_all_sizes([](Rank& rank) {
    std::vector<std::unique_ptr<Flight>> flights;
    for (std::size_t i = 0; i < 60; ++i) {
      flights.push_back(std::make_unique<Flight>(rank.index, i % 7 == 0 ? 6000 : 1 + i % 20, i));
      rank.start(flights.back()->operation());
      for (std::size_t k = 0; k < (i * 5 + static_cast<std::size_t>(rank.index)) % 4; ++k) rank.look();
    }
    for (auto& [token, status] : rank.finish()) rank.expect(status.ok(), "an operation failed");
    for (const auto& flight : flights) flight->check(rank);
  });
}

TEST_CASE("abort: completes what is in flight with the cause, and everything later") {
  for_all_sizes([](Rank& rank) {
    // The last rank starts nothing, so no operation of another rank can complete.
    const bool silent = rank.size > 1 && rank.index == rank.size - 1;
    Flight large(rank.index, large_count());
    Flight tiny(rank.index, 1);
    if (!silent && rank.size > 1) {
      rank.start(large.operation());
      rank.start(tiny.operation());
      for (int i = 0; i < 5; ++i) rank.look();
    }
    rank.backend().abort(kWhy);
    rank.backend().abort(Status(Errc::kInternal, "a second cause, which is not reported"));
    for (auto& [token, status] : rank.finish()) rank.expect(is_why(status), "an operation lost the cause");

    // The backend does not touch the memory of completed operations: values written now must stay.
    std::fill(large.data.begin(), large.data.end(), std::byte{0x77});
    for (int i = 0; i < 20; ++i) rank.look();
    rank.expect(std::all_of(large.data.begin(), large.data.end(), [](std::byte b) { return b == std::byte{0x77}; }),
                "memory was written after its operation had completed");
    // Later operations are refused at once, or complete with the cause.
    const Status refused = rank.backend().start(tiny.operation(), 9999);
    rank.expect(!refused.ok() && is_why(refused), "an operation was started after the abort");
  });
}

TEST_CASE("abort: from another thread, at any moment") {
  for_all_sizes([](Rank& rank) {
    Flight first(rank.index, large_count());
    Flight second(rank.index, large_count() / 2);
    rank.start(first.operation());
    rank.start(second.operation());
    std::atomic<int> looks{0};
    const int when = 1 + 3 * rank.index;
    std::thread other([&] {
      while (looks.load() < when) std::this_thread::yield();
      rank.backend().abort(kWhy);
    });
    // A rank must call look() until the other thread has called abort(), even if its operations are done.
    while (looks.load() < when) {
      rank.look();
      ++looks;
    }
    other.join();
    for (auto& [token, status] : rank.finish()) rank.expect(status.ok() || is_why(status), "a wrong cause");
    const Bytes snapshot = first.data;
    for (int i = 0; i < 20; ++i) rank.look();
    rank.expect(first.data == snapshot, "memory was written after its operation had completed");
  });
}

TEST_CASE("capabilities: what is claimed is consistent") {
  for_all_sizes([](Rank& rank) {
    const backend::Capabilities& can = rank.backend().capabilities();
    rank.expect((can.ops & (1U << static_cast<unsigned>(OpKind::kAllreduce))) != 0, "no allreduce");
    rank.expect(can.devices != 0, "no device");
    rank.expect(can.dtypes != 0 && can.dtypes < (1U << kNumDTypes), "strange dtypes");
    rank.expect(rank.backend().lost_peer().value_or(EndedLink{}).peer == -1, "a peer is lost before anything happened");
  });
}

}  // namespace distrun::test
