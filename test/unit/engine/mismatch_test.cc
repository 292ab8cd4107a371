#include "runtime/engine/readiness/mismatch.h"

#include <catch2/catch_test_macros.hpp>
#include <ctime>
#include <functional>

#include "test/support/text.h"

namespace distrun::engine {
namespace {

const std::vector<std::string> kNodes{"node0", "node0", "node1", "node1"};
const std::vector<int> kMembers{0, 1, 2, 3};
const MismatchContext kContext{.tensor = "grad.1", .members = &kMembers, .hosts = &kNodes};

std::optional<ErrorInfo> check(const std::vector<Signature>& signatures) {
  std::vector<RankSignature> submitted;
  for (std::size_t i = 0; i < signatures.size(); ++i) {
    submitted.push_back({.rank = static_cast<int>(i), .signature = &signatures[i]});
  }
  return find_mismatch(submitted, kContext);
}

using test::has;

struct Row {
  const char* what;
  Signature usual;
  std::function<void(Signature&)> change;
  const char* usual_value;
  const char* odd_value;
};

const Signature kReduce{.shape = {2, 3}};
const Signature kBroadcast{.kind = OpKind::kBroadcast, .root = 1, .shape = {2, 3}};
const Signature kGather{.kind = OpKind::kAllgather, .shape = {2, 3}};

const std::vector<Row> kRows{
    {"operation", kReduce, [](Signature& s) { s = kGather; }, "allreduce", "allgather"},
    {"dtype", kReduce, [](Signature& s) { s.dtype = DType::kF64; }, "float32", "float64"},
    {"device", kReduce, [](Signature& s) { s.device = DeviceType::kCuda; }, "cpu", "cuda"},
    {"shape", kReduce,
     [](Signature& s) {
       s.shape = {3, 2};
     },
     "(2, 3)", "(3, 2)"},
    {"dimensions", kReduce, [](Signature& s) { s.shape = {6}; }, "(2, 3)", "(6"},
    {"reduce op", kReduce, [](Signature& s) { s.reduce = ReduceOp::kMax; }, "sum", "max"},
    {"prescale", kReduce, [](Signature& s) { s.prescale = 0.5; }, "have 1", "has 0.5"},
    {"postscale", kReduce, [](Signature& s) { s.postscale = 0.25; }, "have 1", "has 0.25"},
    {"root", kBroadcast, [](Signature& s) { s.root = 3; }, "have 1", "has 3"},
    {"group", kReduce, [](Signature& s) { s.group = {.digest = 1, .size = 2, .first = "first"}; }, "no group",
     "'first'"},
    {"broadcast shape", kBroadcast, [](Signature& s) { s.shape = {1}; }, "(2, 3)", "(1"},
    {"gather dims", kGather,
     [](Signature& s) {
       s.shape = {2, 4};
     },
     "(2, 3)", "(2, 4)"},
    {"gather ndim", kGather,
     [](Signature& s) {
       s.shape = {2, 3, 1};
     },
     "2 dimensions", "3 dimensions"},
    {"gather 0-d", kGather, [](Signature& s) { s.shape = {}; }, "2 dimensions", "0 dimensions"},
};

TEST_CASE("every difference names the tensor, the odd rank, its host and both values") {
  for (const Row& row : kRows) {
    INFO(row.what);
    std::vector<Signature> signatures(4, row.usual);
    row.change(signatures[2]);
    CHECK_FALSE(compatible(signatures[1], signatures[2]));
    const auto error = check(signatures);
    REQUIRE(error);
    INFO(error->message);
    CHECK(error->code == Errc::kMismatch);
    CHECK(error->usable);
    CHECK(error->tensor == "grad.1");
    CHECK(error->ranks == std::vector<int>{2});
    CHECK(error->host == "node1");
    CHECK(has(error->message, "'grad.1'"));
    CHECK(has(error->message, "rank 2 (node1) has"));
    CHECK(has(error->message, "ranks 0, 1 (node0), 3 (node1) have"));
    CHECK(has(error->message, row.usual_value));
    CHECK(has(error->message, row.odd_value));
  }
}

TEST_CASE("what agrees is no mismatch") {
  for (const Row& row : kRows) CHECK_FALSE(check(std::vector<Signature>(4, row.usual)));
  std::vector<Signature> uneven(4, kGather);
  uneven[1].shape = {0, 3};
  uneven[3].shape = {9, 3};
  CHECK(compatible(uneven[0], uneven[1]));
  CHECK_FALSE(check(uneven));
  Signature nan = kReduce;
  nan.prescale = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(check(std::vector<Signature>(4, nan)));
}

TEST_CASE("with two ranks, both are named") {
  Signature other = kReduce;
  other.dtype = DType::kI32;
  const auto error = check({kReduce, other});
  REQUIRE(error);
  CHECK(error->ranks == std::vector<int>{0, 1});
  CHECK(has(error->message, "rank 0 (node0) has float32"));
  CHECK(has(error->message, "rank 1 (node0) has int32"));
}

TEST_CASE("the majority is the largest party even if the first rank is odd") {
  Signature other = kReduce;
  other.dtype = DType::kI32;
  const auto error = check({other, kReduce, kReduce, kReduce});
  REQUIRE(error);
  CHECK(error->ranks == std::vector<int>{0});
  CHECK(error->host == "node0");
}

TEST_CASE("what all ranks agree on can still be wrong") {
  CHECK_FALSE(check_agreed(kReduce, kContext));
  CHECK_FALSE(check_agreed(kGather, kContext));
  CHECK_FALSE(check_agreed(kBroadcast, kContext));
  Signature gather = kGather;
  gather.shape = {};
  const auto zero = check_agreed(gather, kContext);
  REQUIRE(zero);
  CHECK(zero->code == Errc::kInvalidArgument);
  CHECK(has(zero->message, "0 dimensions"));
  Signature root = kBroadcast;
  root.root = 4;
  const auto outside = check_agreed(root, kContext);
  REQUIRE(outside);
  CHECK(outside->code == Errc::kInvalidArgument);
  CHECK(outside->ranks == *kContext.members);
  CHECK(has(outside->message, "root rank 4"));
}

TEST_CASE("very many values are not all told, but all ranks are") {
  constexpr std::size_t kRanks = 10000;
  std::vector<Signature> signatures(kRanks, kReduce);
  std::vector<RankSignature> submitted;
  std::vector<int> members;
  const std::vector<std::string> hosts(kRanks, "node-with-a-name-of-usual-length");
  for (std::size_t i = 0; i < kRanks; ++i) {
    const int rank = static_cast<int>(i);
    if (i >= 3) signatures[i].shape = {static_cast<std::int64_t>(i), 3};
    submitted.push_back({.rank = rank, .signature = &signatures[i]});
    members.push_back(rank);
  }
  const std::clock_t start = std::clock();
  const auto error = find_mismatch(submitted, {.tensor = "grad.1", .members = &members, .hosts = &hosts});
  CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 1.0);
  REQUIRE(error);
  INFO(error->message);
  CHECK(error->message.size() < 4096);
  CHECK(has(error->message, "rank 3 (node-with-a-name-of-usual-length) has (3, 3)"));
  CHECK(has(error->message, "rank 9 (node-with-a-name-of-usual-length) has (9, 3)"));
  CHECK(has(error->message, "; and 9990 more have other values; ranks 0, 1, 2 (node-with"));
  CHECK(error->ranks.size() == kRanks - 3);
}

TEST_CASE("long lists of ranks are cut") {
  std::vector<int> many(100);
  for (int i = 0; i < 100; ++i) many[static_cast<std::size_t>(i)] = i;
  const std::string text = describe_ranks(many, std::vector<std::string>(100, "h"));
  CHECK(has(text, "and 84 more"));
  CHECK(describe_ranks(std::vector<int>{2}, kNodes) == "rank 2 (node1)");
}

}  // namespace
}  // namespace distrun::engine
