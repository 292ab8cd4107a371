#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "runtime/engine/protocol/response_cache.h"

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

TEST_CASE(
    "to be evicted are the least recently used, none that is busy or was used since, and all that are needed or none") {
  ResponseCache cache;
  for (TensorId id = 1; id <= 4; ++id) {
    ResponseCache::Record one = record(id, "t" + std::to_string(id));
    one.used = id;
    cache.define(one);
  }
  using Ids = std::vector<TensorId>;
  CHECK(cache.unused_since(9, 2, kNoneBusy) == Ids{1, 2});
  cache.touch(1, 5);
  CHECK(cache.unused_since(9, 2, kNoneBusy) == Ids{2, 3});
  const auto three_busy = [](const ResponseCache::Record& r) { return r.id == 3; };
  CHECK(cache.unused_since(9, 2, three_busy) == Ids{2, 4});
  CHECK(cache.unused_since(9, 3, three_busy) == Ids{2, 4, 1});
  CHECK(cache.unused_since(5, 3, three_busy) == Ids{});
  CHECK(cache.unused_since(2, 1, kNoneBusy) == Ids{});
}

TEST_CASE("records of many rows weigh more, and give it back") {
  ResponseCache cache;
  ResponseCache::Record heavy = record(1, "a");
  heavy.first_dims.resize(3 * 1024);
  cache.define(heavy);
  cache.define(record(2, "b"));
  CHECK(cache.weight() == 4);
  CHECK(cache.unused_since(9, 3, kNoneBusy) == std::vector<TensorId>{1});
  cache.define(record(3, "a"));
  CHECK(cache.weight() == 2);
  cache.erase_set(0);
  CHECK(cache.weight() == 0);
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
