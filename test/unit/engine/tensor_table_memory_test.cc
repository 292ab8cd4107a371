// A submission when memory runs out. It is a separate program, because it replaces operator new.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <new>

#include "runtime/engine/run/tensor_table.h"
#include "test/support/little_memory.h"

namespace distrun::engine {
namespace {

TEST_CASE("wherever memory ends in a submission, nothing of it stays") {
  std::array<float, 8> memory{};
  std::vector<Submission> both;
  for (const char* name : {"a", "b"}) {
    float* at = memory.data() + 4 * both.size();
    both.push_back({.name = name, .shape = {4}, .group = 1, .input = at, .output = at});
  }
  both.push_back({.kind = OpKind::kJoin, .name = std::string(kJoinName), .process_set = 3});
  bool made = false;
  int failures = 0;
  for (long allocations = 0; !made; ++allocations) {
    TensorTable table(1);
    table.open_set(0, {0, 1});
    table.open_set(3, {0, 1});
    bool failed = false;
    test::allocations_left = allocations;
    try {
      made = table.submit(both, {}).ok();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    test::allocations_left = -1;
    CHECK(failed != made);
    CHECK(table.in_flight() == (made ? 3U : 0U));
    CHECK(table.has_new() == made);
    if (made) break;
    ++failures;
    CHECK(table.submit(both, {}).ok());
  }
  CHECK(failures > 5);
}

}  // namespace
}  // namespace distrun::engine
