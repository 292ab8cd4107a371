#include "runtime/engine/agreement/coordinator.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <set>

#include "runtime/engine/protocol/tensor_key.h"
#include "test/support/text.h"
#include "test/unit/engine/coordinator_options.h"

namespace distrun::engine {
namespace {

using std::chrono::seconds;

message::Submitted gather(const std::string& name, std::int64_t dim) {
  message::Submitted m = request(name, {dim, 2});
  m.signature.kind = OpKind::kAllgather;
  return m;
}

message::Submitted grouped(const std::string& name, std::uint64_t digest, std::uint32_t size) {
  message::Submitted m = request(name);
  m.signature.group = {.digest = digest, .size = size, .first = "g"};
  return m;
}

using test::has;

// The id of the tensor after all ranks have submitted it by name.
TensorId make_known(Coordinator& c, int ranks, const message::Submitted& what) {
  for (int r = 0; r < ranks; ++r) c.submitted(r, what, at(0));
  const auto runs = only<entry::Run>(c.act());
  REQUIRE(runs.size() == 1);
  return runs[0].tensors[0].id;
}

TEST_CASE("a tensor runs when the last member has submitted it, and once") {
  Coordinator c(warning_options(3));
  c.submitted(2, request("a"), at(0));
  c.submitted(0, request("a"), at(1));
  CHECK(c.act().entries.empty());
  c.submitted(1, request("a"), at(2));
  const auto runs = only<entry::Run>(c.act());
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].set == 0);
  REQUIRE(runs[0].tensors.size() == 1);
  CHECK(runs[0].tensors[0].name == "a");
  CHECK(runs[0].tensors[0].id != kNoId);
  CHECK(c.act().entries.empty());
  CHECK(c.log_size() == 1);
}

TEST_CASE("all of a group fails with its rival, also where it began to wait later") {
  Coordinator c(warning_options(3));
  for (const int rank : {0, 2}) c.submitted(rank, request("allreduce.g_1of1"), at(0));
  c.submitted(1, grouped("allreduce.g_1of2", 7, 2), at(4));
  c.submitted(1, grouped("allreduce.g_2of2", 7, 2), at(4));
  c.tick(at(10));
  const auto failed = only<entry::Fail>(c.act());
  REQUIRE(failed.size() == 3);
  for (const entry::Fail& one : failed) CHECK(one.error.code() == Errc::kMismatch);
  CHECK_FALSE(c.next_tick());
}

TEST_CASE("what comes of a group after its rivals failed, or shortly before, fails with them") {
  const bool before = GENERATE(true, false);
  CAPTURE(before);
  Coordinator c(warning_options(2));
  for (const char* name : {"allreduce.g_1of2", "allreduce.g_2of2"}) c.submitted(0, grouped(name, 5, 2), at(0));
  for (const char* name : {"allreduce.g_1of3", "allreduce.g_2of3"}) c.submitted(1, grouped(name, 7, 3), at(0));
  if (before) c.submitted(1, grouped("allreduce.g_3of3", 7, 3), at(7));
  c.tick(*c.next_tick());
  CHECK(only<entry::Fail>(c.act()).size() == (before ? 5 : 4));
  if (!before) {
    c.submitted(1, grouped("allreduce.g_3of3", 7, 3), at(11));
    const auto failed = only<entry::Fail>(c.act());
    REQUIRE(failed.size() == 1);
    CHECK(failed[0].name == "allreduce.g_3of3");
    CHECK(failed[0].error.code() == Errc::kMismatch);
  }
  CHECK_FALSE(c.next_tick());
  for (const char* name : {"allreduce.g_1of3", "allreduce.g_2of3", "allreduce.g_3of3"}) {
    for (const int rank : {0, 1}) c.submitted(rank, grouped(name, 7, 3), at(12));
  }
  CHECK(only<entry::Run>(c.act()).size() == 1);
}

TEST_CASE("a known tensor runs by its id alone") {
  Coordinator c(warning_options(2));
  const TensorId id = make_known(c, 2, request("a"));
  c.ready(1, id, at(1));
  CHECK(c.act().entries.empty());
  c.ready(0, id, at(1));
  const auto runs = only<entry::Run>(c.act());
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].tensors == std::vector<TensorRef>{{.id = id}});
}

TEST_CASE("a full request under a known name makes a new id if all agree, and a mismatch if not") {
  Coordinator c(warning_options(2));
  const TensorId id = make_known(c, 2, request("a", {4}));
  c.ready(0, id, at(1));
  c.submitted(1, request("a", {5}), at(1));
  const auto failed = only<entry::Fail>(c.act());
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].name == "a");
  CHECK(failed[0].error.code() == Errc::kMismatch);
  CHECK(has(failed[0].error.message(), "(4"));
  CHECK(has(failed[0].error.message(), "(5"));
  const TensorId second = make_known(c, 2, request("a", {5}));
  CHECK(second != id);
  c.ready(0, second, at(2));
  c.ready(1, second, at(2));
  CHECK(only<entry::Run>(c.act()).size() == 1);
}

TEST_CASE("allgather: sizes come with the entry, and are remembered while nobody's changes") {
  Coordinator c(warning_options(3));
  for (int r = 0; r < 3; ++r) c.submitted(r, gather("g", r + 1), at(0));
  const auto first = only<entry::Run>(c.act());
  REQUIRE(first.size() == 1);
  CHECK(first[0].tensors[0].first_dims == std::vector<std::int64_t>{1, 2, 3});
  const TensorId id = first[0].tensors[0].id;
  for (int r = 0; r < 3; ++r) c.ready(r, id, at(1));
  CHECK(only<entry::Run>(c.act())[0].tensors == std::vector<TensorRef>{{.id = id}});
  c.ready(0, id, at(2));
  c.submitted(1, gather("g", 7), at(2));
  c.ready(2, id, at(2));
  const auto changed = only<entry::Run>(c.act());
  REQUIRE(changed.size() == 1);
  CHECK(changed[0].tensors[0].id != id);
  CHECK(changed[0].tensors[0].name == "g");
  CHECK(changed[0].tensors[0].first_dims == std::vector<std::int64_t>{1, 7, 3});
}

TEST_CASE("capacity 0: nothing gets an id") {
  auto o = warning_options(2);
  o.cache_capacity = 0;
  Coordinator c(o);
  for (int round = 0; round < 3; ++round) {
    CHECK(make_known(c, 2, request("a")) == kNoId);
  }
}

TEST_CASE("the cache evicts the least recently used, never what is submitted somewhere, for what comes again") {
  auto o = warning_options(2);
  o.cache_capacity = 2;
  Coordinator c(o);
  const TensorId a = make_known(c, 2, request("a"));
  const TensorId b = make_known(c, 2, request("b"));
  c.ready(0, a, at(1));
  CHECK(make_known(c, 2, request("d")) == kNoId);
  for (int r = 0; r < 2; ++r) c.submitted(r, request("d"), at(1));
  const Actions again = c.act();
  const auto evicted = only<entry::Evict>(again);
  REQUIRE(evicted.size() == 1);
  CHECK(evicted[0].ids == std::vector<TensorId>{b});  // a is older, but pending
  CHECK(only<entry::Run>(again).at(0).tensors.at(0).id > b);
  c.ready(1, b, at(2));  // sent before rank 1 read the eviction
  c.submitted(0, request("b"), at(3));
  c.ready(1, a, at(3));
  const auto runs = only<entry::Run>(c.act());
  REQUIRE(runs.size() == 1);
  REQUIRE(runs[0].tensors.size() == 2);
  CHECK(runs[0].tensors[0].name == "b");
  CHECK(runs[0].tensors[0].id == kNoId);
  CHECK(runs[0].tensors[1].id == a);
}

TEST_CASE("an evicted id is unknown once all members have read that") {
  auto o = warning_options(2);
  o.cache_capacity = 1;
  Coordinator c(o);
  const TensorId a = make_known(c, 2, request("a"));
  const auto evict_for = [&c](const std::string& name) {
    make_known(c, 2, request(name));
    for (int r = 0; r < 2; ++r) c.submitted(r, request(name), at(0));
    return only<entry::Evict>(c.act()).at(0).ids;
  };
  CHECK(evict_for("b") == std::vector<TensorId>{a});
  for (int r = 0; r < 2; ++r) c.has_read(r, c.log_size());
  evict_for("c");  // the next eviction checks how far each rank has read
  CHECK(c.act().abort.ok());
  c.ready(1, a, at(1));
  CHECK(c.act().abort.code() == Errc::kProtocol);
}

TEST_CASE("busy sets gather ready tensors, which then run together") {
  Coordinator c(warning_options(2));
  const std::vector<int> busy{0};
  for (const char* name : {"a", "b", "c"}) {
    for (int r = 0; r < 2; ++r) c.submitted(r, request(name), at(0));
    CHECK(c.act(busy).entries.empty());
  }
  const auto runs = only<entry::Run>(c.act());
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].tensors.size() == 3);
}

TEST_CASE("a group runs when all of it is there") {
  Coordinator c(warning_options(2));
  for (int r = 0; r < 2; ++r) c.submitted(r, grouped("x", 1, 2), at(0));
  CHECK(c.act().entries.empty());
  for (int r = 0; r < 2; ++r) c.submitted(r, grouped("y", 1, 2), at(0));
  const auto runs = only<entry::Run>(c.act());
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].tensors.size() == 2);
}

TEST_CASE("one bad tensor fails its whole group, in any order, and the next step is clean") {
  for (const bool bad_first : {true, false}) {
    Coordinator c(warning_options(2));
    const auto bad = [&] {
      c.submitted(0, grouped("x", 1, 2), at(0));
      auto other = grouped("x", 1, 2);
      other.signature.dtype = DType::kF64;
      c.submitted(1, other, at(0));
    };
    if (bad_first) bad();
    for (int r = 0; r < 2; ++r) c.submitted(r, grouped("y", 1, 2), at(0));
    if (!bad_first) bad();
    const auto failed = only<entry::Fail>(c.act());
    REQUIRE(failed.size() == 2);
    for (const auto& one : failed) {
      CHECK(one.error.code() == Errc::kMismatch);
      CHECK(has(one.error.message(), "tensor 'x': data types differ"));
    }
    for (const char* name : {"x", "y"}) {
      for (int r = 0; r < 2; ++r) c.submitted(r, grouped(name, 1, 2), at(1));
    }
    CHECK(only<entry::Run>(c.act()).at(0).tensors.size() == 2);
  }
}

TEST_CASE("what one rank alone has in its group fails with the rest, whoever comes first, and the next step is clean") {
  const auto three = [](Coordinator& c, int rank, TimePoint when) {
    for (const char* name : {"x", "y", "z"}) c.submitted(rank, grouped(name, 3, 3), when);
  };
  for (const bool long_first : {true, false}) {
    Coordinator c(warning_options(3));
    if (long_first) three(c, 1, at(0));
    for (const char* name : {"x", "y"}) c.submitted(0, grouped(name, 2, 2), at(0));
    if (!long_first) three(c, 1, at(0));
    CHECK(c.act().entries.empty());
    three(c, 2, at(0));  // two ranks have started to submit z: it does not fail before both have done so
    std::map<std::string, std::vector<int>> failed;
    for (const auto& one : only<entry::Fail>(c.act())) {
      CHECK(has(one.error.message(), "groups differ"));
      failed[one.name] = one.ranks;
    }
    REQUIRE(failed.size() == 3);
    CHECK(failed["x"].empty());
    CHECK(failed["z"] == std::vector<int>{1, 2});
    for (int rank = 0; rank < 3; ++rank) three(c, rank, at(1));
    CHECK(only<entry::Run>(c.act()).at(0).tensors.size() == 3);
    CHECK_FALSE(c.next_tick());
  }
}

TEST_CASE("different groups on different ranks are an error for all tensors concerned") {
  Coordinator c(warning_options(2));
  for (const char* name : {"x", "y"}) c.submitted(0, grouped(name, 1, 2), at(0));
  for (const char* name : {"x", "y"}) c.submitted(1, request(name), at(0));
  const auto failed = only<entry::Fail>(c.act());
  REQUIRE(failed.size() == 2);
  CHECK(has(failed[0].error.message(), "groups differ"));
}

TEST_CASE("all of groups that differ fails when a third rank joins, in any order, and nothing is left") {
  message::Submitted join{.name = std::string(kJoinName)};
  join.signature.kind = OpKind::kJoin;
  const std::vector<std::pair<int, message::Submitted>> said = {
      {0, grouped("a", 1, 2)}, {0, grouped("b", 1, 2)}, {1, grouped("a", 2, 2)}, {1, grouped("c", 2, 2)}, {2, join}};
  std::vector<std::size_t> order = {0, 1, 2, 3, 4};
  do {
    Coordinator c(warning_options(3));
    for (const std::size_t i : order) c.submitted(said[i].first, said[i].second, at(0));
    std::set<std::string> failed;
    for (const entry::Fail& one : only<entry::Fail>(c.act())) failed.insert(one.name);
    CHECK(failed == std::set<std::string>{"a", "b", "c"});
    CHECK_FALSE(c.next_tick());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("stalls: named, timed, repeated, and no timer while nothing waits") {
  Coordinator c(warning_options(4));
  CHECK_FALSE(c.next_tick());
  c.submitted(0, request("a"), at(0));
  c.submitted(1, request("a"), at(1));
  c.submitted(3, request("a"), at(1));
  REQUIRE(c.next_tick());
  CHECK(*c.next_tick() == at(10));
  c.tick(at(9));
  CHECK(c.act().warnings.empty());
  c.tick(at(10));
  const auto warned = c.act();
  REQUIRE(warned.warnings.size() == 1);
  INFO(warned.warnings[0]);
  CHECK(has(warned.warnings[0], "rank 2 (node1)"));
  CHECK(has(warned.warnings[0], "allreduce 'a'"));
  CHECK(has(warned.warnings[0], "10.0 s"));
  CHECK(*c.next_tick() == at(20));
  c.tick(at(20));
  CHECK(has(c.act().warnings.at(0), "20.0 s"));
  c.submitted(2, request("a"), at(21));
  CHECK(only<entry::Run>(c.act()).size() == 1);
  CHECK_FALSE(c.next_tick());
}

TEST_CASE("a stall longer than the limit ends the job, naming the missing ranks") {
  auto o = warning_options(3);
  o.stall_shutdown = seconds(30);
  Coordinator c(o);
  c.submitted(0, request("a"), at(0));
  c.tick(at(30));
  const auto actions = c.act();
  REQUIRE_FALSE(actions.abort.ok());
  const ErrorInfo& info = actions.abort.info();
  CHECK(info.code == Errc::kTimeout);
  CHECK(info.ranks == std::vector<int>{1, 2});
  CHECK(info.host == "node0");
  CHECK(info.tensor == "a");
  CHECK_FALSE(info.usable);
  CHECK(c.finished());
  c.submitted(1, request("a"), at(31));
  CHECK(c.act().entries.empty());
}

TEST_CASE("a join may wait as long as the others have data: it is no stall") {
  auto o = warning_options(3);
  o.stall_shutdown = seconds(30);
  Coordinator c(o);
  message::Submitted join{.name = std::string(kJoinName)};
  join.signature.kind = OpKind::kJoin;
  c.submitted(0, join, at(0));
  CHECK_FALSE(c.next_tick());
  c.tick(at(1000));
  const auto quiet = c.act();
  CHECK(quiet.abort.ok());
  CHECK(quiet.warnings.empty());
  c.submitted(1, request("a"), at(1000));
  REQUIRE(c.next_tick());
  CHECK(*c.next_tick() == at(1010));
}

TEST_CASE("process sets: made by all, used by members, removed by all, ids not reused") {
  Coordinator c(warning_options(3));
  const Call add{.kind = Call::Kind::kAddSet, .ranks = {0, 2}};
  for (int r = 0; r < 3; ++r) c.called(r, add, at(0));
  const auto making = only<entry::MakeSet>(c.act());
  REQUIRE(making.size() == 1);
  const int set = making[0].set;
  CHECK(set == 1);
  c.set_made(2, set, {});
  CHECK(c.act().entries.empty());
  c.set_made(0, set, {});
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].result.ok());
  CHECK(ended[0].set == set);
  c.submitted(0, request("a", {4}, set), at(1));
  c.submitted(2, request("a", {4}, set), at(1));
  CHECK(only<entry::Run>(c.act()).at(0).set == set);

  c.submitted(0, request("late", {4}, set), at(2));
  for (int r = 0; r < 3; ++r) c.called(r, {.kind = Call::Kind::kRemoveSet, .set = set}, at(2));
  const auto removal = c.act();
  REQUIRE(only<entry::Fail>(removal).size() == 1);
  CHECK(has(only<entry::Fail>(removal)[0].error.message(), "removed before rank 2"));
  CHECK(only<entry::RemoveSet>(removal).size() == 1);
  for (int r = 0; r < 3; ++r) c.called(r, add, at(3));
  CHECK(only<entry::MakeSet>(c.act()).at(0).set == 2);
}

TEST_CASE("a set that cannot be made on one rank is made on none") {
  Coordinator c(warning_options(2));
  for (int r = 0; r < 2; ++r) c.called(r, {.kind = Call::Kind::kAddSet, .ranks = {0, 1}}, at(0));
  const int set = only<entry::MakeSet>(c.act()).at(0).set;
  c.set_made(0, set, {});
  c.set_made(1, set, {Errc::kSystem, "no memory"});
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE(ended.size() == 1);
  CHECK(has(ended[0].result.message(), "rank 1 (node0): no memory"));
  for (int r = 0; r < 2; ++r) c.called(r, {.kind = Call::Kind::kRemoveSet, .set = set}, at(1));
  CHECK_FALSE(only<entry::EndCall>(c.act()).at(0).result.ok());
}

TEST_CASE("calls that differ between ranks fail on all of them, and the next ones are paired again") {
  Coordinator c(warning_options(3));
  c.called(0, {.kind = Call::Kind::kAddSet, .ranks = {0, 1}}, at(0));
  c.called(1, {.kind = Call::Kind::kAddSet, .ranks = {0, 1}}, at(0));
  c.called(2, {.kind = Call::Kind::kAddSet, .ranks = {0, 2}}, at(0));
  for (int r = 0; r < 3; ++r) c.called(r, {.kind = Call::Kind::kStopTimeline}, at(0));
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].result.code() == Errc::kMismatch);
  CHECK(ended[0].result.info().ranks == std::vector<int>{2});
  CHECK(ended[1].result.ok());
}

TEST_CASE("sets of members alone: disjoint ones side by side, answered to their members, removed by them") {
  Coordinator c(warning_options(5));
  for (const int rank : {0, 1}) c.called(rank, alone({0, 1}), at(0));
  for (const int rank : {4, 3}) c.called(rank, alone({3, 4}), at(0));
  const auto making = only<entry::MakeSet>(c.act());
  REQUIRE(making.size() == 2);
  CHECK(making[0].members_only);
  CHECK(making[0].set != making[1].set);
  c.set_made(3, making[1].set, {});
  c.set_made(4, making[1].set, {});
  const auto second = only<entry::EndCall>(c.act());
  REQUIRE(second.size() == 1);
  CHECK(second[0].set == making[1].set);
  CHECK(second[0].ranks == std::vector<int>{3, 4});
  c.set_made(0, making[0].set, {});
  c.set_made(1, making[0].set, {Errc::kSystem, "no memory"});
  const auto first = only<entry::EndCall>(c.act());
  REQUIRE(first.size() == 1);
  CHECK(has(first[0].result.message(), "no memory"));
  CHECK(first[0].ranks == std::vector<int>{0, 1});

  for (const int rank : {3, 4}) c.called(rank, {.kind = Call::Kind::kRemoveSet, .set = making[1].set}, at(1));
  const auto removal = c.act();
  CHECK(only<entry::RemoveSet>(removal).size() == 1);
  CHECK(only<entry::EndCall>(removal).at(0).ranks == std::vector<int>{3, 4});
}

TEST_CASE("a set of members alone waits neither for others nor for a call of all ranks that is under way") {
  Coordinator c(warning_options(3));
  c.called(2, {.kind = Call::Kind::kStopTimeline}, at(0));
  for (const int rank : {0, 1}) c.called(rank, alone({0, 1}), at(0));
  const int set = only<entry::MakeSet>(c.act()).at(0).set;
  for (const int rank : {0, 1}) c.called(rank, {.kind = Call::Kind::kStopTimeline}, at(0));
  CHECK(c.act().entries.empty());  // their earlier calls are still running
  for (const int rank : {0, 1}) c.set_made(rank, set, {});
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].ranks == std::vector<int>{0, 1});
  CHECK(ended[1].ranks.empty());
}

TEST_CASE("members that name different ranks get an error at once, and so does who calls later; then all go on") {
  Coordinator c(warning_options(4));
  c.called(0, alone({0, 1}), at(0));
  CHECK(c.act().entries.empty());
  c.called(1, alone({0, 1, 2}), at(0));
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].result.code() == Errc::kMismatch);
  CHECK(has(ended[0].result.message(), "rank 1 (node0): adding a process set of ranks 0, 1, 2 by its members alone"));
  CHECK(ended[0].ranks == std::vector<int>{0, 1});
  c.called(2, alone({0, 1, 2}), at(1));
  const auto later = only<entry::EndCall>(c.act());
  REQUIRE(later.size() == 1);
  CHECK(later[0].result.message() == ended[0].result.message());
  CHECK(later[0].ranks == std::vector<int>{2});
  for (const int rank : {2, 0, 1}) c.called(rank, alone({0, 1, 2}), at(2));
  CHECK(only<entry::MakeSet>(c.act()).size() == 1);
}

TEST_CASE("calls of members alone that wait for one another in a circle fail; who is not in it does not") {
  Coordinator c(warning_options(5));
  c.called(4, {.kind = Call::Kind::kStopTimeline}, at(0));
  c.called(0, alone({0, 1}), at(0));
  c.called(1, alone({1, 2}), at(0));
  CHECK(c.act().entries.empty());
  c.called(2, alone({0, 2}), at(0));
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].result.code() == Errc::kMismatch);
  CHECK(ended[0].ranks == std::vector<int>{0, 1, 2});
  for (const int rank : {0, 1, 2, 3}) c.called(rank, {.kind = Call::Kind::kStopTimeline}, at(0));
  const auto after = only<entry::EndCall>(c.act());
  REQUIRE(after.size() == 1);
  CHECK(after[0].result.ok());
}

TEST_CASE("who holds up a call of members alone is named, and its leaving ends the job") {
  Coordinator c(warning_options(4));
  c.called(0, alone({0, 1}), at(0));
  c.called(1, alone({1, 2}), at(1));
  c.tick(at(11));
  const auto warnings = c.act().warnings;
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "waiting for rank 2 (node1): adding a process set of ranks 1, 2"));
  CHECK_FALSE(has(warnings[0], "waiting for rank 1"));
  c.leave(2);
  CHECK(c.act().abort.code() == Errc::kRankLeft);
}

TEST_CASE("a call that one rank could not do its part of fails on all") {
  Coordinator c(warning_options(2));
  const Call call{.kind = Call::Kind::kStartTimeline, .path = "t.json"};
  c.called(0, call, at(0), {Errc::kSystem, "disk full"});
  c.called(1, call, at(0));
  const Actions actions = c.act();
  CHECK(only<entry::Timeline>(actions).empty());
  const auto ended = only<entry::EndCall>(actions);
  REQUIRE(ended.size() == 1);
  CHECK(has(ended[0].result.message(), "disk full"));
}

TEST_CASE("calls are reported when they stall, and fail when a rank has left") {
  Coordinator c(warning_options(2));
  c.called(0, {.kind = Call::Kind::kRemoveSet, .set = 1}, at(0));
  REQUIRE(c.next_tick());
  c.tick(at(10));
  CHECK(has(c.act().warnings.at(0), "rank 1 (node0): removing process set 1"));
  c.leave(1);
  CHECK(c.act().abort.code() == Errc::kRankLeft);
}

TEST_CASE("what no sound member says ends the job") {
  const auto ends = [](auto event) {
    Coordinator c(warning_options(2));
    event(c);
    const Status abort = c.act().abort;
    REQUIRE_FALSE(abort.ok());
    CHECK(abort.code() == Errc::kProtocol);
    CHECK(abort.info().ranks == std::vector<int>{1});
  };
  ends([](Coordinator& c) { c.ready(1, 42, at(0)); });
  ends([](Coordinator& c) { c.submitted(1, request("a", {4}, 9), at(0)); });
  ends([](Coordinator& c) {
    c.submitted(1, request("a"), at(0));
    c.submitted(1, request("a"), at(0));
  });
  ends([](Coordinator& c) {
    c.leave(1);
    c.submitted(1, request("a"), at(0));
  });
  ends([](Coordinator& c) { c.drained(1); });
  ends([](Coordinator& c) {
    c.leave(1);
    c.drained(1);
    c.drained(1);
  });
  ends([](Coordinator& c) { c.set_made(1, 1, {}); });
  ends([](Coordinator& c) { c.called(1, alone({0}), at(0)); });
  ends([](Coordinator& c) { c.called(1, alone({1, 5}), at(0)); });
}

TEST_CASE("after a death nothing is appended") {
  Coordinator c(warning_options(2));
  c.submitted(0, request("a"), at(0));
  c.submitted(1, request("a"), at(0));
  c.died({Errc::kRankLost, "rank 1 was lost"});
  CHECK(c.finished());
  const auto actions = c.act();
  CHECK(actions.entries.empty());
  CHECK(actions.abort.code() == Errc::kRankLost);
}

}  // namespace
}  // namespace distrun::engine
