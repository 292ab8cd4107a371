#include "runtime/engine/run/overlap.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/run/tensor_table.h"

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

class MemoryFixture {
 public:
  MemoryFixture() : table(0) { table.open_set(0, {0, 1}); }

  Submission allreduce(const std::string& name, std::size_t from, std::size_t to, std::int64_t bytes) {
    return {.name = name,
            .dtype = DType::kU8,
            .shape = {bytes},
            .input = memory.data() + from,
            .output = memory.data() + to};
  }
  Submission in_place(const std::string& name, std::size_t at, std::int64_t bytes) {
    return allreduce(name, at, at, bytes);
  }
  Submission reads(const std::string& name, std::size_t at, std::int64_t bytes) {
    return {
        .kind = OpKind::kAllgather, .name = name, .dtype = DType::kU8, .shape = {bytes}, .input = memory.data() + at};
  }
  Submission broadcast(const std::string& name, std::size_t at, std::int64_t bytes, int root) {
    Submission made = in_place(name, at, bytes);
    made.kind = OpKind::kBroadcast;
    made.root = root;
    return made;
  }
  // The name of the tensor in flight that refuses it; empty if none does.
  std::string refused_by(const Submission& one) {
    auto result = table.submit(std::span(&one, 1), {});
    if (result.ok()) {
      handles.push_back(result->front());
      return "";
    }
    CHECK(result.status().code() == Errc::kInvalidArgument);
    CHECK(result.status().info().tensor == one.name);
    const std::string text = result.status().message();
    const std::string before = "tensor '" + one.name + "': its memory overlaps that of tensor '";
    CHECK(text.starts_with(before));
    CHECK(text.ends_with("', which is in flight. Wait for the handle of that one first, or use separate memory"));
    return text.substr(before.size(), text.find('\'', before.size()) - before.size());
  }
  void complete_all() {
    std::vector<TensorPtr> taken;
    table.take_new(taken);
    std::vector<Completion> completions;
    for (const TensorPtr& one : table.all_in_flight()) completions.push_back({.tensor = one});
    table.complete(completions);
  }

  std::array<std::byte, 4096> memory{};
  TensorTable table;
  std::vector<HandlePtr> handles;
};

TEST_CASE_METHOD(MemoryFixture, "memory in flight: what one operation writes, no other may read or write") {
  CHECK(refused_by(in_place("a", 10, 10)).empty());
  CHECK(refused_by(in_place("b", 10, 10)) == "a");
  CHECK(refused_by(in_place("c", 0, 11)) == "a");
  CHECK(refused_by(in_place("d", 19, 50)) == "a");
  CHECK(refused_by(in_place("e", 0, 90)) == "a");
  CHECK(refused_by(reads("f", 12, 1)) == "a");
  CHECK(refused_by(allreduce("g", 15, 40, 10)) == "a");
  CHECK(refused_by(allreduce("h", 40, 5, 10)) == "a");
  CHECK(refused_by(in_place("i", 0, 10)).empty());
  CHECK(refused_by(in_place("j", 20, 5)).empty());
  CHECK(refused_by(in_place("k", 12, 0)).empty());
}

TEST_CASE_METHOD(MemoryFixture, "memory in flight: one input may be read many times, and not be written") {
  CHECK(refused_by(reads("a", 0, 10)).empty());
  CHECK(refused_by(reads("b", 5, 10)).empty());
  CHECK(refused_by(reads("c", 0, 100)).empty());
  CHECK(refused_by(allreduce("d", 0, 200, 10)).empty());
  CHECK(refused_by(in_place("e", 50, 1)) == "c");
  CHECK(refused_by(allreduce("f", 300, 3, 1)) == "a");
  CHECK(refused_by(in_place("g", 100, 50)).empty());
}

TEST_CASE_METHOD(MemoryFixture, "memory in flight: broadcasts from one root may write the same memory") {
  CHECK(refused_by(broadcast("a", 0, 10, 1)).empty());
  CHECK(refused_by(broadcast("b", 5, 10, 1)).empty());
  CHECK(refused_by(broadcast("c", 0, 10, 0)) == "a");
  CHECK(refused_by(in_place("d", 12, 1)) == "b");
}

TEST_CASE_METHOD(MemoryFixture, "memory in flight: it is free when the caller has seen the end, and not before") {
  CHECK(refused_by(in_place("a", 0, 10)).empty());
  complete_all();
  CHECK(refused_by(in_place("b", 0, 10)) == "a");  // other ranks may be slower, and must decide the same
  CHECK(handles.front()->done());
  CHECK(refused_by(in_place("b", 0, 10)).empty());
  complete_all();
  handles.clear();  // released without a wait
  CHECK(refused_by(in_place("c", 5, 10)).empty());
}

TEST_CASE_METHOD(MemoryFixture, "memory in flight: a refused call leaves nothing behind") {
  CHECK(refused_by(in_place("a", 0, 10)).empty());
  const std::vector<Submission> both{in_place("b", 20, 10), in_place("c", 5, 1)};
  CHECK_FALSE(table.submit(both, {}).ok());
  CHECK(table.in_flight() == 1);
  CHECK(refused_by(in_place("b", 20, 10)).empty());
}

TEST_CASE_METHOD(MemoryFixture, "memory in flight: operations on a GPU are ordered by their streams") {
  for (const char* name : {"a", "b"}) {
    Submission one = in_place(name, 0, 10);
    one.device = {.type = DeviceType::kCuda, .index = 0};
    CHECK(refused_by(one).empty());
  }
}

TEST_CASE_METHOD(MemoryFixture, "memory in flight: many operations, and half of them have ended") {
  for (std::size_t i = 0; i < 400; ++i) CHECK(refused_by(in_place(std::to_string(i), 10 * i, 10)).empty());
  complete_all();
  for (std::size_t i = 0; i < 400; i += 2) CHECK(handles[i]->done());
  for (std::size_t i = 0; i < 400; ++i) {
    CHECK(refused_by(in_place("new." + std::to_string(i), 10 * i, 10)) == (i % 2 == 0 ? "" : std::to_string(i)));
  }
}

}  // namespace
}  // namespace distrun::engine
