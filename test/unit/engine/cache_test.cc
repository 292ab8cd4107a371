#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "runtime/engine/response_cache.h"

namespace distrun::engine {
namespace {

ResponseCache::Record record(TensorId id, const std::string& name, int set = 0) {
  return {.id = id, .set = set, .name = name};
}

const auto kNoneBusy = [](const ResponseCache::Record&) { return false; };

TEST_CASE("records are found by id and by name within their set") {
  ResponseCache cache;
  cache.define(record(1, "a"));
  cache.define(record(2, "a", 5));
  REQUIRE(cache.find(1) != nullptr);
  CHECK(cache.find(1)->set == 0);
  REQUIRE(cache.find(5, "a") != nullptr);
  CHECK(cache.find(5, "a")->id == 2);
  CHECK(cache.find(3) == nullptr);
  CHECK(cache.find(0, "b") == nullptr);
}

TEST_CASE("a new id for a name replaces the old one") {
  ResponseCache cache;
  cache.define(record(1, "a"));
  cache.define(record(2, "a"));
  CHECK(cache.size() == 1);
  CHECK(cache.find(1) == nullptr);
  CHECK(cache.find(0, "a")->id == 2);
}

TEST_CASE("overflow names the least recently used that are not busy") {
  ResponseCache cache;
  for (TensorId id = 1; id <= 4; ++id) cache.define(record(id, "t" + std::to_string(id)));
  CHECK(cache.overflow(4, kNoneBusy).empty());
  CHECK(cache.overflow(2, kNoneBusy) == std::vector<TensorId>{1, 2});
  cache.touch(1);
  CHECK(cache.overflow(2, kNoneBusy) == std::vector<TensorId>{2, 3});
  const auto three_busy = [](const ResponseCache::Record& r) { return r.id == 3; };
  CHECK(cache.overflow(2, three_busy) == std::vector<TensorId>{2, 4});
  CHECK(cache.overflow(0, three_busy) == std::vector<TensorId>{2, 4, 1});
}

TEST_CASE("erasing a set leaves the others") {
  ResponseCache cache;
  cache.define(record(1, "a"));
  cache.define(record(2, "b", 3));
  cache.define(record(3, "c", 3));
  cache.erase_set(3);
  CHECK(cache.size() == 1);
  CHECK(cache.find(3, "b") == nullptr);
  cache.erase(9);
  cache.erase(1);
  CHECK(cache.size() == 0);
}

TEST_CASE("ids come round without meeting one that lives, or the one that means none") {
  ResponseCache cache;
  cache.define(record(1, "hot"));
  cache.define(record(3, "warm"));
  TensorId next = std::numeric_limits<TensorId>::max();
  for (const TensorId expected : {std::numeric_limits<TensorId>::max(), TensorId{2}, TensorId{4}, TensorId{5}}) {
    CHECK(cache.free_id(next) == expected);
  }
}

}  // namespace
}  // namespace distrun::engine
