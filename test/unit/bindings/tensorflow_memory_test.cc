// The store for the memory of large outputs in the TensorFlow op library.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <thread>
#include <vector>

#include "bindings/tensorflow/warm_memory.h"

using distrun::tensorflow::WarmMemory;

namespace {

constexpr std::size_t kBlock = WarmMemory::kLeast;

bool is_aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 64 == 0; }

}  // namespace

TEST_CASE("a block that was given back is taken again, by its size alone") {
  WarmMemory memory(4 * kBlock);
  void* const first = memory.take(kBlock);
  REQUIRE(first != nullptr);
  CHECK(is_aligned(first));
  memory.give_back(first, kBlock);
  CHECK(memory.kept() == kBlock);

  void* const larger = memory.take(2 * kBlock);
  CHECK(is_aligned(larger));
  CHECK(larger != first);
  CHECK(memory.kept() == kBlock);
  CHECK(memory.take(kBlock) == first);
  CHECK(memory.kept() == 0);
  memory.give_back(first, kBlock);
  memory.give_back(larger, 2 * kBlock);
}

TEST_CASE("no more is kept than was said, and what was given back longest ago goes first") {
  WarmMemory memory(3 * kBlock);
  void* const old = memory.take(kBlock);
  void* const newer = memory.take(2 * kBlock);
  void* const newest = memory.take(kBlock);
  memory.give_back(old, kBlock);
  memory.give_back(newer, 2 * kBlock);
  memory.give_back(newest, kBlock);
  CHECK(memory.kept() == 3 * kBlock);
  CHECK(memory.take(kBlock) == newest);
  CHECK(memory.kept() == 2 * kBlock);
  memory.give_back(newest, kBlock);

  void* const huge = memory.take(4 * kBlock);
  memory.give_back(huge, 4 * kBlock);
  CHECK(memory.kept() == 3 * kBlock);
}

TEST_CASE("threads take and give back at the same time") {
  WarmMemory memory(2 * kBlock);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&memory, i] {
      for (int round = 0; round < 200; ++round) {
        auto* const block = static_cast<unsigned char*>(memory.take(kBlock));
        *block = static_cast<unsigned char>(i);
        std::this_thread::yield();
        if (*block != i) std::terminate();
        memory.give_back(block, kBlock);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(memory.kept() <= 2 * kBlock);
}
