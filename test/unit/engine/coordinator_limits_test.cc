// What the coordinator allows at most: of time in a call.
#include <catch2/catch_test_macros.hpp>

#include "runtime/engine/coordinator.h"

namespace distrun::engine {
namespace {

using std::chrono::seconds;

TimePoint at(int second) { return TimePoint{} + seconds(1000 + second); }

CoordinatorOptions options(int world_size) {
  CoordinatorOptions o{.world_size = world_size, .fusion_threshold = 1 << 20, .cache_capacity = 16};
  o.hosts.resize(static_cast<std::size_t>(world_size), "node");
  o.stall_shutdown = seconds(30);
  return o;
}

TEST_CASE(
    "a call that has waited for longer than the limit ends the job, naming the missing ranks, in each way to call") {
  const Call of_all{.kind = Call::Kind::kAddSet, .ranks = {0, 2}};
  const Call by_members{.kind = Call::Kind::kAddSet, .ranks = {0, 2}, .members_only = true};
  const Call apart{.kind = Call::Kind::kAddSet, .ranks = {0, 2}, .members_only = true, .apart = true};
  for (const Call& call : {of_all, by_members, apart, Call{.kind = Call::Kind::kRemoveSet, .set = 1}}) {
    Coordinator c(options(3));
    c.called(0, call, at(0));
    const bool all = !call.members_only;
    if (all) c.called(1, call, at(1));
    c.tick(at(29));
    CHECK(c.act().abort.ok());
    CHECK(c.next_tick() == at(30));
    c.tick(at(30));
    const Status ended = c.act().abort;
    REQUIRE(ended.code() == Errc::kTimeout);
    CHECK(ended.info().ranks == std::vector<int>{2});
    CHECK_FALSE(ended.info().usable);
  }
}

}  // namespace
}  // namespace distrun::engine
