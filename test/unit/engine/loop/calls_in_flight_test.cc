#include "runtime/engine/calls_in_flight.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::engine {
namespace {

const TimePoint kStart = Clock::now();

std::shared_ptr<CallTicket> add(CallsInFlight& calls, Call call, int second) {
  auto ticket = std::make_shared<CallTicket>();
  calls.add({.call = std::move(call), .ticket = ticket}, kStart + std::chrono::seconds(second));
  return ticket;
}

TEST_CASE("calls in order end in order") {
  CallsInFlight calls;
  add(calls, {.ranks = {0, 1}}, 1);
  add(calls, {.ranks = {0, 2}}, 2);
  CHECK(calls.oldest()->call.ranks == std::vector{0, 1});
  CHECK(calls.start({.set = 4, .ranks = {0, 1}}).ok());
  const auto first = calls.take({.set = 4});
  REQUIRE(first);
  CHECK(first->running);
  CHECK_FALSE(calls.take({.set = 9})->running);
  CHECK_FALSE(calls.take({.set = 9}));
}

TEST_CASE("unordered calls end by the number of their set") {
  CallsInFlight calls;
  add(calls, {.ranks = {0, 1}, .unordered = true}, 1);
  add(calls, {.ranks = {0, 2}, .unordered = true}, 2);
  CHECK(calls.start({.set = 7, .ranks = {0, 3}, .unordered = true}).code() == Errc::kProtocol);
  CHECK(calls.start({.set = 7, .ranks = {0, 2}, .unordered = true}).ok());
  CHECK_FALSE(calls.take({.set = 8, .unordered = true}));
  CHECK(calls.take({.set = 7, .unordered = true})->call.ranks == std::vector{0, 2});
  CHECK(calls.oldest()->call.ranks == std::vector{0, 1});
}

TEST_CASE("a failure ends all of them") {
  CallsInFlight calls;
  const auto ordered = add(calls, {.ranks = {0, 1}}, 1);
  const auto unordered = add(calls, {.ranks = {0, 1}, .unordered = true}, 2);
  calls.fail({Errc::kAborted, "x"});
  CHECK(ordered->status().code() == Errc::kAborted);
  CHECK(unordered->status().code() == Errc::kAborted);
  CHECK(calls.oldest() == nullptr);
  CHECK(calls.timeline() == nullptr);
}

}  // namespace
}  // namespace distrun::engine
