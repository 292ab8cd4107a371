#include "runtime/engine/run/overlap.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <utility>
#include <vector>

namespace distrun::engine {
namespace {

using Pair = std::pair<std::size_t, std::size_t>;

std::array<std::byte, 100> memory;

MemoryUse in_place(std::size_t begin, std::size_t bytes, std::optional<int> root = std::nullopt) {
  const std::byte* at = memory.data() + begin;
  return {.input = at, .input_bytes = bytes, .output = at, .output_bytes = bytes, .root = root};
}

MemoryUse reads(std::size_t begin, std::size_t bytes) { return {.input = memory.data() + begin, .input_bytes = bytes}; }

MemoryUse copies(std::size_t from, std::size_t to, std::size_t bytes) {
  return {.input = memory.data() + from, .input_bytes = bytes, .output = memory.data() + to, .output_bytes = bytes};
}

TEST_CASE("overlap: tensors in place may touch, but not overlap") {
  CHECK_FALSE(find_overlap(std::vector{in_place(0, 10), in_place(20, 5), in_place(10, 10)}));
  CHECK(find_overlap(std::vector{in_place(0, 10), in_place(20, 5), in_place(9, 3)}) == Pair{0, 2});
  CHECK(find_overlap(std::vector{in_place(50, 4), in_place(0, 90), in_place(95, 1)}) == Pair{0, 1});
  CHECK(find_overlap(std::vector{in_place(7, 8), in_place(7, 8)}) == Pair{0, 1});
  // The one in between ends before the third one begins.
  CHECK(find_overlap(std::vector{in_place(0, 60), in_place(70, 5), in_place(59, 1)}) == Pair{0, 2});
}

TEST_CASE("overlap: one input may be read many times, and nobody may write it") {
  CHECK_FALSE(find_overlap(std::vector{reads(0, 10), reads(5, 10), copies(0, 20, 10), copies(0, 30, 10)}));
  CHECK(find_overlap(std::vector{reads(0, 10), copies(40, 5, 10)}) == Pair{0, 1});
  CHECK(find_overlap(std::vector{copies(0, 20, 10), copies(50, 29, 10)}) == Pair{0, 1});
  CHECK(find_overlap(std::vector{copies(0, 20, 10), copies(25, 60, 5)}) == Pair{0, 1});
}

TEST_CASE("overlap: no bytes overlap nothing") {
  CHECK_FALSE(find_overlap(std::vector{in_place(5, 0), in_place(0, 10), reads(3, 0)}));
  CHECK_FALSE(find_overlap({}));
}

TEST_CASE("overlap: broadcasts from one root may write the same memory, which tied weights do") {
  CHECK_FALSE(find_overlap(std::vector{in_place(0, 10, 1), in_place(0, 10, 1), in_place(5, 5, 1)}));
  CHECK(find_overlap(std::vector{in_place(0, 10, 1), in_place(0, 10, 2)}) == Pair{0, 1});
  CHECK(find_overlap(std::vector{in_place(0, 10, 1), in_place(5, 2)}) == Pair{0, 1});
  CHECK(find_overlap(std::vector{in_place(0, 10, 0), in_place(0, 10, 0), reads(4, 1)}).has_value());
}

}  // namespace
}  // namespace distrun::engine
