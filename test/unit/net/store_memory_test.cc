// A rank's call of the store when memory runs out. It is a separate program, because it replaces operator new.
#include <catch2/catch_test_macros.hpp>
#include <new>
#include <string>

#include "test/support/little_memory.h"
#include "test/support/store_thread.h"

namespace distrun::net {
namespace {

TimePoint soon() { return deadline_after(40); }

// Returns kOk if the call threw.
Errc outcome_with(long allocations, StoreClient& client, const std::string& key) {
  const TimePoint deadline = deadline_after(0.05);
  Errc outcome = Errc::kOk;
  test::allocations_left = allocations;
  try {
    outcome = client.get(key, deadline).status().code();
  } catch (const std::bad_alloc&) {
  }
  test::allocations_left = -1;
  return outcome;
}

TEST_CASE("wherever memory ends in a call, a reply that comes afterwards reaches nobody else", "[store]") {
  test::StoreThread server(2);
  const auto client = server.connect(0);
  const auto other = server.connect(1);
  Errc outcome = Errc::kOk;
  long allocations = 0;
  for (; outcome == Errc::kOk; ++allocations) {
    REQUIRE(allocations < 200);
    const std::string key = "key" + std::to_string(allocations);
    outcome = outcome_with(allocations, *client, key);
    // The waiter of the next call is at the same address on the stack.
    REQUIRE(other->set(key, "late").ok());
    REQUIRE(other->set(key + "next", "right").ok());
    const auto value = client->get(key + "next", soon());
    REQUIRE(value.ok());
    REQUIRE(*value == "right");
  }
  CHECK(outcome == Errc::kTimeout);
  CHECK(allocations > 3);
}

}  // namespace
}  // namespace distrun::net
