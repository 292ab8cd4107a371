// The leader's decisions after a rank has joined, while other ranks wait for something else.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <ctime>
#include <string>

#include "test/support/text.h"
#include "test/unit/engine/coordinator_options.h"

namespace distrun::engine {
namespace {

message::Submitted asked(OpKind kind, const std::string& name, int set = 0) {
  Signature signature{.kind = kind};
  if (kind != OpKind::kJoin) signature.shape = {4};
  return {.set = set, .name = name, .signature = std::move(signature)};
}

message::Submitted join(int set = 0) { return asked(OpKind::kJoin, std::string(kJoinName), set); }

using test::has;

TEST_CASE("ranks that wait for each other crosswise fail, also where another has joined, which had no part in it") {
  const bool joins_first = GENERATE(true, false);
  const bool submits_first = GENERATE(true, false);  // rank 2 submits one of the two tensors before it joins
  CAPTURE(joins_first, submits_first);
  Coordinator c(warning_options(3));
  if (submits_first) c.submitted(2, asked(OpKind::kAllreduce, "allreduce.k"), at(0));
  if (joins_first) c.submitted(2, join(), at(0));
  c.submitted(0, asked(OpKind::kAllreduce, "allreduce.k"), at(0));
  c.submitted(1, asked(OpKind::kAllgather, "allgather.k"), at(0));
  if (!joins_first) c.submitted(2, join(), at(0));
  CHECK(c.act().entries.empty());
  c.tick(at(10));
  const auto failed = only<entry::Fail>(c.act());
  REQUIRE(failed.size() == 2);
  for (const entry::Fail& one : failed) {
    CHECK(one.error.code() == Errc::kMismatch);
    INFO(one.error.message());
    CHECK(has(one.error.message(),
              submits_first ? "ranks 0 (node0), 2 (node1) submitted allreduce" : "rank 0 (node0) submitted allreduce"));
    CHECK(has(one.error.message(), "rank 1 (node0) submitted allgather"));
  }
  for (const int rank : {0, 1}) c.submitted(rank, join(), at(11));
  CHECK(only<entry::Run>(c.act()).size() == 1);
}

TEST_CASE("a group of another length is found where a rank has joined") {
  Coordinator c(warning_options(3));
  c.submitted(2, join(), at(0));
  c.submitted(0, asked(OpKind::kAllreduce, "allreduce.g_1of1"), at(0));
  for (const char* name : {"allreduce.g_1of2", "allreduce.g_2of2"}) {
    message::Submitted part = asked(OpKind::kAllreduce, name);
    part.signature.group = {.digest = 7, .size = 2, .first = "g"};
    c.submitted(1, part, at(1));
  }
  c.tick(at(10));
  CHECK(only<entry::Fail>(c.act()).size() == 3);
}

TEST_CASE("a member that sends a join as another tensor, or in a group, ends the job") {
  message::Submitted differing = asked(OpKind::kAllreduce, std::string(kJoinName));
  SECTION("another operation") {}
  SECTION("another name") { differing = asked(OpKind::kJoin, "j"); }
  SECTION("in a group") {
    differing = join();
    differing.signature.group = {.digest = 7, .size = 2, .first = "g"};
  }
  Coordinator c(warning_options(2));
  c.submitted(0, join(), at(0));
  c.submitted(1, differing, at(1));
  const Status ended = c.act().abort;
  CHECK(ended.code() == Errc::kProtocol);
  CHECK(has(ended.message(), "rank 1 (node0) sent tensor '" + differing.name + "' as a join, or a join as a tensor"));
}

TEST_CASE("a stall report does not count who has joined among those that submitted") {
  Coordinator c(warning_options(3));
  c.submitted(2, join(), at(0));
  c.submitted(0, asked(OpKind::kAllreduce, "a"), at(0));
  c.tick(at(10));
  const auto warnings = c.act().warnings;
  REQUIRE(warnings.size() == 1);
  INFO(warnings[0]);
  CHECK(has(warnings[0], "waiting for rank 1 (node0) to submit"));
  CHECK(has(warnings[0], "after rank 0 (node0)"));
}

TEST_CASE("a call that waits for a rank in join, which waits for the callers, fails on all and says so") {
  Coordinator c(warning_options(3));
  const Call call{.kind = Call::Kind::kStartTimeline, .path = "t.json"};
  c.submitted(0, join(), at(0));
  c.called(1, call, at(1));
  c.called(2, call, at(2));
  c.tick(*c.next_tick());
  const Actions actions = c.act();
  CHECK(actions.warnings.empty());
  const auto ended = only<entry::EndCall>(actions);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].result.code() == Errc::kInvalidArgument);
  CHECK(ended[0].result.info().ranks == std::vector<int>{0});
  CHECK(ended[0].ranks == std::vector<int>{1, 2});
  CHECK(has(ended[0].result.message(), "starting the timeline 't.json' waits for rank 0 (node0), which called join()"));
  CHECK_FALSE(c.next_tick());

  for (const int rank : {1, 2}) c.submitted(rank, join(), at(12));
  CHECK(only<entry::Run>(c.act()).size() == 1);
  c.called(0, call, at(13));
  const auto later = only<entry::EndCall>(c.act());
  REQUIRE(later.size() == 1);
  CHECK(later[0].result.message() == ended[0].result.message());
  CHECK(later[0].ranks == std::vector<int>{0});
  for (const int rank : {0, 1, 2}) c.called(rank, call, at(14));
  CHECK(only<entry::EndCall>(c.act()).at(0).result.ok());
}

TEST_CASE("who waits crosswise, or for a join, is found within a warning's time however long others have waited") {
  Coordinator c(warning_options(3));
  const auto tick_until = [&c](int end) {
    for (auto due = c.next_tick(); due && *due <= at(end); due = c.next_tick()) c.tick(*due);
    return c.act();
  };
  c.submitted(0, asked(OpKind::kAllreduce, "allreduce.k"), at(0));
  c.submitted(1, asked(OpKind::kAllgather, "allgather.k"), at(0));
  c.called(1, {.kind = Call::Kind::kStopTimeline}, at(1));
  CHECK(only<entry::Fail>(tick_until(645)).empty());
  c.submitted(2, asked(OpKind::kAllreduce, "allreduce.other"), at(645));
  c.submitted(2, asked(OpKind::kAllreduce, "allreduce.k"), at(650));
  CHECK(only<entry::Fail>(tick_until(661)).size() == 2);
  for (const int rank : {0, 2}) c.submitted(rank, join(), at(900));
  CHECK(only<entry::EndCall>(tick_until(909)).empty());
  CHECK(only<entry::EndCall>(tick_until(911)).size() == 1);
}

TEST_CASE("without a warning nothing is told, and who waits crosswise or for a join is found after ten seconds") {
  Coordinator c(plain_options(3));
  c.submitted(0, asked(OpKind::kAllreduce, "allreduce.k"), at(0));
  c.submitted(1, asked(OpKind::kAllgather, "allgather.k"), at(0));
  c.submitted(2, asked(OpKind::kAllreduce, "allreduce.k"), at(0));
  REQUIRE(c.next_tick() == at(10));
  c.tick(at(10));
  Actions found = c.act();
  CHECK(found.warnings.empty());
  CHECK(only<entry::Fail>(found).size() == 2);
  CHECK_FALSE(c.next_tick());

  c.submitted(0, asked(OpKind::kAllreduce, "late"), at(20));
  c.submitted(1, join(), at(21));
  c.called(2, {.kind = Call::Kind::kStopTimeline}, at(22));
  c.called(0, {.kind = Call::Kind::kStopTimeline}, at(23));
  for (auto due = c.next_tick(); due && *due <= at(1000); due = c.next_tick()) {
    CHECK(*due <= at(33));
    c.tick(*due);
    found = c.act();
    CHECK(found.warnings.empty());
  }
  const auto ended = only<entry::EndCall>(found);
  REQUIRE(ended.size() == 1);
  CHECK(has(ended[0].result.message(), "waits for rank 1 (node0), which called join()"));
  CHECK_FALSE(c.next_tick());
}

TEST_CASE("a call fails for ranks in join only if all that are missing are, and wait for one who calls") {
  Coordinator c(warning_options(4));
  const Call call{.kind = Call::Kind::kStopTimeline};
  for (const int rank : {0, 1}) c.called(rank, alone({0, 1}), at(0));
  const int set = only<entry::MakeSet>(c.act()).at(0).set;
  for (const int rank : {0, 1}) c.set_made(rank, set, {});
  CHECK(only<entry::EndCall>(c.act()).size() == 1);
  c.submitted(0, join(set), at(1));  // waits only for rank 1
  c.called(2, call, at(1));
  c.called(3, call, at(1));
  c.tick(at(11));
  CHECK(only<entry::EndCall>(c.act()).empty());
  c.submitted(1, join(), at(12));  // waits for rank 2 too, which calls; rank 0 still waits for no rank that calls
  c.tick(at(21));
  CHECK(only<entry::EndCall>(c.act()).empty());
  c.submitted(0, join(), at(22));  // its other threads may call until the time of a warning has passed
  c.tick(at(31));
  CHECK(only<entry::EndCall>(c.act()).empty());
  c.tick(at(32));
  const auto ended = only<entry::EndCall>(c.act());
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].result.info().ranks == std::vector<int>{0, 1});
}

TEST_CASE("a rank in join still makes a call with another thread") {
  Coordinator c(warning_options(2));
  const Call call{.kind = Call::Kind::kStopTimeline};
  c.submitted(0, join(), at(0));
  c.called(1, call, at(0));
  c.tick(at(9));
  c.called(0, call, at(9));
  CHECK(only<entry::EndCall>(c.act()).at(0).result.ok());
}

TEST_CASE("a call that failed before a rank has made it is nothing to that rank when it has gone on to another") {
  Coordinator c(warning_options(4));
  c.called(0, alone({0, 1}), at(0));
  c.called(1, alone({0, 1, 2}), at(0));
  CHECK(only<entry::EndCall>(c.act()).at(0).result.code() == Errc::kMismatch);
  // Rank 2's call with rank 3 does not show that it has passed the failed call.
  for (const int rank : {2, 3}) c.called(rank, alone({2, 3}), at(1));
  const int set = only<entry::MakeSet>(c.act()).at(0).set;
  for (const int rank : {2, 3}) c.set_made(rank, set, {});
  CHECK(only<entry::EndCall>(c.act()).size() == 1);
  const bool tells = GENERATE(false, true);
  if (tells) {
    for (int rank = 0; rank < 4; ++rank) c.called(rank, {.kind = Call::Kind::kStopTimeline}, at(2));
    CHECK(only<entry::EndCall>(c.act()).at(0).result.ok());
  }
  for (const int rank : {2, 0, 1}) c.called(rank, alone({0, 1, 2}), at(3));
  const Actions actions = c.act();
  CHECK(only<entry::MakeSet>(actions).size() == (tells ? 1 : 0));
  CHECK(only<entry::EndCall>(actions).size() == (tells ? 0 : 1));
}

// With this many tensors, each tick once compared all pairs of names.
TEST_CASE("very many tensors that wait are looked through in no time", "[scale]") {
  constexpr int kTensors = 10000;
  const bool crosswise = GENERATE(false, true);
  Coordinator c(warning_options(2));
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = "layers." + std::to_string(i) + ".weight";
    c.submitted(0, asked(OpKind::kAllreduce, "allreduce." + name), at(0));
    if (crosswise) c.submitted(1, asked(OpKind::kAllgather, "allgather." + name), at(0));
  }
  const std::clock_t start = std::clock();
  c.tick(at(10));
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  INFO(took << " s");
  CHECK(took < 2.0);
  const Actions actions = c.act();
  CHECK(only<entry::Fail>(actions).size() == (crosswise ? 2 * kTensors : 0));
  CHECK(actions.warnings.size() == (crosswise ? 0 : 1));
}

TEST_CASE("a long group is compared with one of another length in no time") {
  constexpr std::uint32_t kLength = 4000;
  Coordinator c(warning_options(2));
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const std::uint32_t length = kLength + rank;
    for (std::uint32_t i = 1; i <= length; ++i) {
      message::Submitted part =
          asked(OpKind::kAllreduce, "allreduce.g_" + std::to_string(i) + "of" + std::to_string(length));
      part.signature.group = {.digest = rank + 1, .size = length, .first = "g"};
      c.submitted(static_cast<int>(rank), part, at(0));
    }
  }
  const std::clock_t start = std::clock();
  c.tick(at(10));
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  INFO(took << " s");
  CHECK(took < 2.0);
  CHECK(only<entry::Fail>(c.act()).size() == 2 * kLength + 1);
}

// The CPU seconds that the leader needs while the first `submitters` ranks submit tensors that run or fail in the end.
// The other ranks have joined, or there are none.
double seconds_of(int submitters, int joined) {
  constexpr int kTensors = 40;
  Coordinator c(warning_options(submitters + joined));
  const auto submit = [&c](int from, int to, const std::string& prefix, OpKind kind) {
    for (int i = 0; i < kTensors; ++i) {
      for (int rank = from; rank < to; ++rank) c.submitted(rank, asked(kind, prefix + std::to_string(i)), at(0));
    }
  };
  const std::clock_t start = std::clock();
  submit(0, 1, "before.", OpKind::kAllreduce);
  for (int rank = submitters; rank < submitters + joined; ++rank) c.submitted(rank, join(), at(0));
  submit(1, submitters, "before.", OpKind::kAllreduce);
  submit(0, submitters, "after.", OpKind::kAllreduce);
  submit(0, submitters / 2, "allreduce.crosswise.", OpKind::kAllreduce);
  submit(submitters / 2, submitters, "allgather.crosswise.", OpKind::kAllgather);
  std::size_t ran = 0;
  for (const entry::Run& run : only<entry::Run>(c.act())) ran += run.tensors.size();
  CHECK(ran == 2 * kTensors);
  c.tick(at(10));
  CHECK(only<entry::Fail>(c.act()).size() == 2 * kTensors);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Once, each submission scanned all joined ranks, and each join scanned all ranks that had joined earlier.
TEST_CASE("half of very many ranks have joined: what the others submit hardly costs more for it", "[scale]") {
  constexpr int kHalf = 2048;
  const double alone = seconds_of(kHalf, 0);
  const double joined = seconds_of(kHalf, kHalf);
  INFO(alone << " s without them, " << joined << " s with them");
  CHECK(joined < 6 * alone + 0.1);
}

}  // namespace
}  // namespace distrun::engine
