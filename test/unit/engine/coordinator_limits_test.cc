// The coordinator's limits: the time of a call, and the members of an alltoall.
#include <catch2/catch_test_macros.hpp>

#include "test/unit/engine/coordinator_options.h"

namespace distrun::engine {
namespace {

using std::chrono::seconds;

CoordinatorOptions short_options(int world_size) {
  CoordinatorOptions o = plain_options(world_size);
  o.stall_shutdown = seconds(30);
  return o;
}

TEST_CASE(
    "a call that has waited for longer than the limit ends the job, naming the missing ranks, in each way to call") {
  const Call of_all{.kind = Call::Kind::kAddSet, .ranks = {0, 2}};
  const Call by_members{.kind = Call::Kind::kAddSet, .ranks = {0, 2}, .members_only = true};
  const Call unordered{.kind = Call::Kind::kAddSet, .ranks = {0, 2}, .members_only = true, .unordered = true};
  for (const Call& call : {of_all, by_members, unordered, Call{.kind = Call::Kind::kRemoveSet, .set = 1}}) {
    Coordinator c(short_options(3));
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

TEST_CASE("of very many ranks that call something else each, eight are told, and all are in the error") {
  Coordinator c(plain_options(20));
  for (int rank = 0; rank < 20; ++rank) {
    c.called(rank, {.kind = Call::Kind::kStartTimeline, .path = std::to_string(rank) + ".json"}, at(0));
  }
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE_FALSE(ended.empty());
  const ErrorInfo& error = ended[0].result.info();
  INFO(error.message);
  CHECK(error.code == Errc::kMismatch);
  CHECK(error.ranks.size() == 20);
  CHECK(error.message.find(
            "rank 6 (node3): starting the timeline '6.json'; 12 more with other calls; rank 19 (node9): ") !=
        std::string::npos);
}

TEST_CASE("alltoall with unequal splits of more members than the log has room for is their error; the job goes on") {
  for (const int size : {1024, 1025, 1500}) {
    const auto count = static_cast<std::size_t>(size);
    const message::Submitted equal{.name = "all", .signature = {.kind = OpKind::kAlltoall, .shape = {size, 2}}};
    message::Submitted given = equal;
    given.signature.splits.assign(count, 1);
    message::Submitted unequal = given;
    unequal.signature.splits[0] = 0;
    Coordinator c(short_options(size));
    for (int rank = 0; rank < size; ++rank) c.submitted(rank, rank == 1 ? unequal : equal, at(0));
    Actions actions = c.act();
    CHECK(actions.abort.ok());
    REQUIRE(actions.entries.size() == 1);
    const auto* failed = std::get_if<entry::Fail>(&actions.entries[0]);
    CHECK((failed != nullptr) == (size > 1024));
    if (failed != nullptr) {
      CHECK(failed->error.code() == Errc::kInvalidArgument);
      CHECK(failed->error.info().usable);
      CHECK(failed->error.message().find("at most 1024 ranks, not " + std::to_string(size)) != std::string::npos);
    }
    CHECK(decode(encode({.messages = {message::Append{.entries = std::move(actions.entries)}}})).ok());
    for (int rank = 0; rank < size; ++rank) c.submitted(rank, rank == 1 ? given : equal, at(1));
    actions = c.act();
    REQUIRE(actions.entries.size() == 1);
    const auto& rows = std::get<entry::Run>(actions.entries[0]).tensors[0].first_dims;
    const bool equal_shares = rows == std::vector<std::int64_t>(count, size);
    CHECK(equal_shares);
  }
}

TEST_CASE("alltoall of more members than each of them has memory for their pairs is their error") {
  for (const int size : {4096, 4097}) {
    Coordinator c(plain_options(size));
    const message::Submitted equal{.name = "all", .signature = {.kind = OpKind::kAlltoall, .shape = {size, 2}}};
    for (int rank = 0; rank < size; ++rank) c.submitted(rank, equal, at(0));
    const Actions actions = c.act();
    REQUIRE(actions.entries.size() == 1);
    const auto* failed = std::get_if<entry::Fail>(&actions.entries[0]);
    REQUIRE((failed != nullptr) == (size > 4096));
    if (failed == nullptr) continue;
    CHECK(failed->error.code() == Errc::kInvalidArgument);
    CHECK(failed->error.info().usable);
    CHECK(failed->error.message() ==
          "tensor 'all': an alltoall is possible among at most 4096 ranks, not 4097: use process sets of at most 4096 "
          "ranks");
  }
}

TEST_CASE("an alltoall with unequal splits that come for the first time gets no id; one with equal shares gets one") {
  const message::Submitted equal{.name = "all", .signature = {.kind = OpKind::kAlltoall, .shape = {6, 2}}};
  message::Submitted unequal = equal;
  unequal.signature.splits = {1, 2, 3};
  Coordinator c(short_options(3));
  const auto run = [&c](const message::Submitted& all) {
    for (int rank = 0; rank < 3; ++rank) c.submitted(rank, all, at(0));
    return std::get<entry::Run>(c.act().entries.at(0)).tensors.at(0);
  };
  const TensorRef first = run(unequal);
  CHECK(first.id == kNoId);
  CHECK(first.first_dims == std::vector<std::int64_t>{1, 2, 3, 1, 2, 3, 1, 2, 3});
  const TensorId id = run(equal).id;
  CHECK(id != kNoId);
  // The id keeps its meaning for ranks that still send it.
  CHECK(run(unequal).id == kNoId);
  for (int rank = 0; rank < 3; ++rank) c.ready(rank, id, at(1));
  CHECK(std::get<entry::Run>(c.act().entries.at(0)).tensors.at(0).id == id);
}

}  // namespace
}  // namespace distrun::engine
