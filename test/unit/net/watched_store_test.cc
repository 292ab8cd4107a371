#include "runtime/net/store/watched_store.h"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "test/support/fake_store.h"

namespace distrun::net {
namespace {

constexpr double kLongWait = 60;

TEST_CASE("a wait ends when a member cannot go on, and names it", "[watched_store]") {
  test::FakeStore store;
  WatchedStore waiting(store, "step");
  WatchedStore failing(store, "step");
  std::jthread other([&] { failing.fail(1, "h2", Status(Errc::kOutOfMemory, "no thread")); });
  const TimePoint begin = Clock::now();
  const auto value = waiting.get("never", deadline_after(kLongWait));
  CHECK(Clock::now() - begin < std::chrono::seconds(30));
  REQUIRE_FALSE(value.ok());
  CHECK(value.status().code() == Errc::kOutOfMemory);
  CHECK(value.status().message() == "rank 1 on h2 cannot take part: no thread");
  CHECK(value.status().info().ranks == std::vector<int>{1});
  CHECK(value.status().info().host == "h2");
}

TEST_CASE("of several members that cannot go on the first is told", "[watched_store]") {
  test::FakeStore store;
  WatchedStore watched(store, "step");
  watched.fail(2, "h2", Status(Errc::kSystem, "first"));
  watched.fail(1, "h1", Status(Errc::kSystem, "second"));
  const auto value = watched.get("never", deadline_after(kLongWait));
  CHECK(value.status().message() == "rank 2 on h2 cannot take part: first");
}

TEST_CASE("another step's failure ends no wait, and what is set is found", "[watched_store]") {
  test::FakeStore store;
  WatchedStore failed(store, "other");
  failed.fail(1, "h1", Status(Errc::kSystem, "why"));
  WatchedStore watched(store, "step");
  CHECK(watched.get("never", Clock::now() + std::chrono::milliseconds(1)).status().code() == Errc::kTimeout);
  REQUIRE(watched.set("key", "value").ok());
  CHECK(*watched.get("key", Clock::now()) == "value");
  watched.fail(1, "h1", Status(Errc::kSystem, "why"));
  CHECK(*watched.get("key", Clock::now()) == "value");  // a value that is already there can still be read
}

TEST_CASE("who has waited for others in vain ends nobody else's wait", "[watched_store]") {
  test::FakeStore store;
  WatchedStore watched(store, "step");
  for (const Errc code : {Errc::kTimeout, Errc::kRankLost, Errc::kRankLeft})
    CHECK_FALSE(watched.fail(1, "h1", Status(code, "rank 2 did not come")));
  CHECK(watched.get("never", Clock::now() + std::chrono::milliseconds(1)).status().code() == Errc::kTimeout);
  CHECK(watched.fail(2, "h2", Status(Errc::kSystem, "why")));
  CHECK(watched.get("never", deadline_after(kLongWait)).status().info().ranks == std::vector<int>{2});
}

TEST_CASE("who hears of a failure sooner and leaves because of it does not hide it from the others",
          "[watched_store]") {
  struct EndedStore : test::FakeStore {
    Result<std::string> get(const std::string&, TimePoint) override { return Status(Errc::kRankLeft, "rank 2 left"); }
  };
  EndedStore store;
  WatchedStore watched(store, "step");
  CHECK(watched.get("never", deadline_after(kLongWait)).status().message() == "rank 2 left");
  watched.fail(1, "h1", Status(Errc::kSystem, "why"));
  CHECK(watched.get("never", deadline_after(kLongWait)).status().message() == "rank 1 on h1 cannot take part: why");
}

TEST_CASE("a wait that was long before its end is not cut short", "[watched_store]") {
  test::FakeStore store;
  WatchedStore watched(store, "step");
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    (void)store.set("key", "late");
  });
  CHECK(*watched.get("key", deadline_after(kLongWait)) == "late");
}

}  // namespace
}  // namespace distrun::net
