// The coordinator's decisions about ranks that leave: which ranks are missed, and when the log ends.
#include <catch2/catch_test_macros.hpp>

#include "test/unit/engine/coordinator_options.h"

namespace distrun::engine {
namespace {

TEST_CASE("shutdown is the entry after all have left and the last one has nothing in flight") {
  Coordinator c(plain_options(2));
  c.leave(1);
  c.drained(1);
  CHECK(only<entry::Left>(c.act()).size() == 1);
  c.leave(0);
  CHECK(only<entry::Left>(c.act()).size() == 1);
  c.drained(0);
  const auto end = c.act();
  REQUIRE(end.entries.size() == 1);
  CHECK(std::holds_alternative<entry::Shutdown>(end.entries[0]));
  CHECK(c.finished());
}

TEST_CASE("what waits for a rank that left fails, whichever comes first") {
  for (const bool leave_first : {true, false}) {
    Coordinator c(plain_options(3));
    if (leave_first) c.leave(2);
    c.submitted(0, request("a"), at(0));
    if (!leave_first) c.leave(2);
    const Status abort = c.act().abort;
    REQUIRE_FALSE(abort.ok());
    CHECK(abort.code() == Errc::kRankLeft);
    CHECK(abort.info().ranks == std::vector<int>{2});
    CHECK(abort.info().host == "node1");
    CHECK(abort.info().tensor == "a");
    CHECK_FALSE(abort.info().usable);
  }
}

TEST_CASE("a tensor that only ranks that left wait for fails alone, and shutdown goes on") {
  Coordinator c(plain_options(2));
  c.submitted(0, request("forgotten"), at(0));
  c.leave(0);
  CHECK(c.act().abort.ok());
  c.leave(1);
  c.drained(1);
  const auto failed = c.act();
  CHECK(failed.abort.ok());
  REQUIRE(only<entry::Fail>(failed).size() == 1);
  CHECK(only<entry::Fail>(failed)[0].error.code() == Errc::kRankLeft);
  CHECK(only<entry::Shutdown>(failed).empty());
  c.drained(0);
  CHECK(only<entry::Shutdown>(c.act()).size() == 1);
}

TEST_CASE("a rank that left in the middle of a call is missed by the next one as soon as that has ended") {
  Coordinator c(plain_options(2));
  c.called(0, {.kind = Call::Kind::kAddSet, .ranks = {0, 1}, .members_only = true}, at(0));
  c.called(1, {.kind = Call::Kind::kAddSet, .ranks = {1}, .members_only = true}, at(0));
  CHECK(only<entry::MakeSet>(c.act()).size() == 1);
  c.leave(1);
  CHECK(c.act().abort.ok());
  c.set_made(1, 1, {});
  const Status abort = c.act().abort;
  CHECK(abort.code() == Errc::kRankLeft);
  CHECK(abort.info().ranks == std::vector<int>{1});
}

}  // namespace
}  // namespace distrun::engine
