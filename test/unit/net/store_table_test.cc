#include "runtime/net/store/store_table.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "test/support/digest.h"

namespace distrun::net {
namespace {

using Request = StoreRequest::Kind;
using Reply = StoreReply::Kind;

StoreRequest set(std::uint64_t id, std::string key, std::string value) {
  return {.kind = Request::kSet, .id = id, .key = std::move(key), .value = std::move(value)};
}
StoreRequest get(std::uint64_t id, std::string key) { return {.kind = Request::kGet, .id = id, .key = std::move(key)}; }
StoreRequest add(std::uint64_t id, std::string key, std::int64_t delta) {
  return {.kind = Request::kAdd, .id = id, .key = std::move(key), .delta = delta};
}

struct Outgoing {
  int rank = -1;
  StoreReply reply;
};
std::vector<Outgoing> handle(StoreTable& table, int rank, const StoreRequest& request) {
  std::vector<Outgoing> out;
  table.handle(rank, request, [&](int to, const StoreReply& reply) { out.push_back({.rank = to, .reply = reply}); });
  return out;
}

TEST_CASE("the bytes of the store's messages are those of docs/internals/wire.md", "[store_table]") {
  CHECK(digest(encode(StoreRequest{.kind = Request::kSet, .id = 5, .key = "k", .value = "v"})) == 0x7eb93511a3633765);
  CHECK(digest(encode(StoreRequest{.kind = Request::kAdd, .id = 5, .key = "k", .delta = -2})) == 0xc6ef64157c7b7567);
  CHECK(digest(encode(StoreRequest{.kind = Request::kErase, .key = "p/", .delta = 3})) == 0x492510a1110dd994);
  const RankFailure slow{.cause = "slow", .tensor = "t", .place = {.file = "a.py", .line = 7}};
  CHECK(digest(encode(StoreRequest{.kind = Request::kFailure, .failure = slow})) == 0x09634e8b9330dd9b);
  const MissedPeers missed{.ranks = {2, 3}, .link = LinkEnd::kSilent, .by_other = true};
  CHECK(digest(encode(StoreRequest{.kind = Request::kStall, .missed = missed, .failure = slow})) == 0xef2d09b71b37b167);
  CHECK(digest(encode(StoreRequest{.kind = Request::kLoss, .missed = missed, .failure = slow})) == 0xa5b2d3d527e2d0c9);
  CHECK(digest(encode(StoreRequest{.kind = Request::kNoProgress, .failure = slow})) == 0x69f436ae1d1a4661);
  CHECK(digest(encode(StoreRequest{.kind = Request::kStop, .value = "why"})) == 0xff9f5dabfbb9f0fc);
  const RankWait wait{.what = "x", .waiting = {0}, .missing = {1, 2}};
  CHECK(digest(encode(StoreRequest{.kind = Request::kWaits, .waits = {wait}})) == 0xb42ce7adea1582c0);
  const CodeFrame frame{.place = slow.place, .function = "f"};
  const ProgramState state{.view = ProgramState::View::kSeen,
                           .wait = MainWait::kForever,
                           .operation = "x",
                           .waited = 1.5,
                           .exception = "ValueError: bad",
                           .raised_at = slow.place,
                           .threads = {{.name = "t", .frames = {frame}}},
                           .kernel = "k"};
  CHECK(digest(encode(StoreRequest{.kind = Request::kState, .state = state})) == 0x050ee2c2363eb4cf);
  CHECK(digest(encode(StoreReply{.kind = Reply::kValue, .id = 5, .text = "v"})) == 0xcffed56bbebdb9da);
  const StoreRequest swaps{.kind = Request::kSwap, .id = 5, .key = "k", .expected = "v", .wanted = std::nullopt};
  CHECK(digest(encode(swaps)) == 0x45e42f9c24ec8c45);
  CHECK(digest(encode(StoreRequest{.kind = Request::kCount, .id = 5, .key = "k"})) == 0x503c1dadbf4077dc);
  CHECK(digest(encode(StoreReply{.kind = Reply::kAbsent, .id = 5})) == 0x9fd6ba937435ce05);
  const JobEvent event{
      .rank = 2, .signal = 9, .exit_code = -1, .host = "n1", .cause = "killed", .explained_by_output = true};
  CHECK(digest(encode(StoreReply{.kind = Reply::kEvent, .event = event})) == 0x7551a4217a4d42d9);
}

TEST_CASE("a value is there for those who come later", "[store_table]") {
  StoreTable table;
  CHECK(handle(table, 0, set(1, "k", "v")).at(0).reply.kind == Reply::kDone);
  const auto out = handle(table, 1, get(7, "k"));
  REQUIRE(out.size() == 1);
  CHECK(out[0].rank == 1);
  CHECK(out[0].reply.id == 7);
  CHECK(out[0].reply.text == "v");
  handle(table, 0, set(2, "k", "w"));
  CHECK(handle(table, 1, get(8, "k")).at(0).reply.text == "w");
}

TEST_CASE("those who wait are answered when the key is set, once", "[store_table]") {
  StoreTable table;
  CHECK(handle(table, 1, get(5, "k")).empty());
  CHECK(handle(table, 2, get(5, "k")).empty());
  CHECK(handle(table, 2, get(6, "other")).empty());
  const auto out = handle(table, 0, set(1, "k", "v"));
  REQUIRE(out.size() == 3);
  CHECK(out[1].rank == 1);
  CHECK(out[2].rank == 2);
  CHECK(out[2].reply.text == "v");
  CHECK(handle(table, 0, set(2, "k", "v")).size() == 1);
}

TEST_CASE("a text is not copied for each of those who wait", "[store_table]") {
  StoreTable table;
  for (const int rank : {1, 2, 3}) handle(table, rank, get(5, "k"));
  std::vector<const char*> texts;
  table.handle(0, set(1, "k", std::string(1000, 'x')), [&](int, const StoreReply& reply) {
    if (reply.kind == Reply::kValue) texts.push_back(reply.text.data());
  });
  REQUIRE(texts.size() == 3);
  CHECK(texts == std::vector<const char*>(3, texts[0]));
}

TEST_CASE("who gave up or went is not answered", "[store_table]") {
  StoreTable table;
  handle(table, 1, get(1, "k"));
  handle(table, 1, get(2, "k"));
  handle(table, 2, get(1, "k"));
  handle(table, 1, {.kind = Request::kCancel, .id = 1});
  handle(table, 1, {.kind = Request::kCancel, .id = 99});
  table.forget(2);
  const auto out = handle(table, 0, set(1, "k", "v"));
  REQUIRE(out.size() == 2);
  CHECK(out[1].rank == 1);
  CHECK(out[1].reply.id == 2);
}

TEST_CASE("counters start at 0, are values in decimal digits and do not overflow", "[store_table]") {
  StoreTable table;
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  CHECK(handle(table, 0, add(1, "k", 5)).at(0).reply.sum == 5);
  CHECK(handle(table, 1, add(1, "k", -7)).at(0).reply.sum == -2);
  CHECK(handle(table, 1, get(2, "k")).at(0).reply.text == "-2");
  CHECK(handle(table, 2, get(3, "waited for")).empty());
  const auto out = handle(table, 0, add(4, "waited for", 3));
  REQUIRE(out.size() == 2);
  CHECK(out[1].rank == 2);
  CHECK(out[1].reply.text == "3");
  handle(table, 0, set(5, "text", "5x"));
  for (const char* text : {"5x", "", " 5", "99999999999999999999"}) {
    handle(table, 0, set(5, "text", text));
    CHECK(handle(table, 0, add(6, "text", 1)).at(0).reply.kind == Reply::kRefused);
    CHECK(handle(table, 0, get(7, "text")).at(0).reply.text == text);
  }
  CHECK(handle(table, 0, add(2, "big", kMax)).at(0).reply.sum == kMax);
  CHECK(handle(table, 0, add(3, "big", 1)).at(0).reply.kind == Reply::kRefused);
  CHECK(handle(table, 0, add(4, "big", 0)).at(0).reply.sum == kMax);
}

StoreRequest swap(std::string key, std::optional<std::string> expected, std::optional<std::string> wanted) {
  return {.kind = Request::kSwap,
          .id = 1,
          .key = std::move(key),
          .expected = std::move(expected),
          .wanted = std::move(wanted)};
}

TEST_CASE("a swap changes what is as expected, and tells what was there", "[store_table]") {
  StoreTable table(1000);
  const auto before = [&](const StoreRequest& request) {
    const auto read = decode_request(encode(request));
    REQUIRE(read.ok());
    const StoreReply reply = handle(table, 0, *read).at(0).reply;
    CHECK((reply.kind == Reply::kValue || reply.kind == Reply::kAbsent));
    return reply.kind == Reply::kAbsent ? std::optional<std::string>() : reply.text;
  };
  CHECK(before(swap("k", "v", "w")) == std::nullopt);
  CHECK(before(swap("k", std::nullopt, std::nullopt)) == std::nullopt);
  CHECK(before(swap("k", std::nullopt, "v")) == std::nullopt);
  CHECK(before(swap("k", std::nullopt, "w")) == "v");
  CHECK(before(swap("k", "other", "w")) == "v");
  CHECK(before(swap("k", "v", "")) == "v");
  CHECK(before(swap("k", "", std::nullopt)) == "");
  CHECK(handle(table, 1, get(2, "k")).empty());
  const auto out = handle(table, 0, swap("k", std::nullopt, "now"));
  REQUIRE(out.size() == 2);
  CHECK(out[1].reply.text == "now");
  // A removed value frees its space. A value that does not fit changes nothing.
  for (int round = 0; round < 100; ++round) {
    CHECK(before(swap("large", std::nullopt, std::string(600, 'x'))) == std::nullopt);
    CHECK(before(swap("large", std::string(600, 'x'), std::nullopt)) == std::string(600, 'x'));
  }
  CHECK(handle(table, 0, swap("k", "now", std::string(2000, 'x'))).at(0).reply.kind == Reply::kRefused);
  CHECK(before(swap("k", "other", "w")) == "now");
}

TEST_CASE("keys are counted by their beginning", "[store_table]") {
  StoreTable table;
  for (const char* key : {"a", "a/1", "a/2", "ab", "b"}) handle(table, 0, set(1, key, "v"));
  handle(table, 0, add(2, "a/n", 1));
  const auto count = [&](const char* prefix) {
    return handle(table, 0, {.kind = Request::kCount, .id = 3, .key = prefix}).at(0).reply.sum;
  };
  CHECK(count("a/") == 3);
  CHECK(count("") == 6);
  CHECK(count("c") == 0);
}

TEST_CASE("the table has a limit, and overwriting gives room back", "[store_table]") {
  StoreTable table(1000);
  CHECK(handle(table, 0, set(1, "a", std::string(700, 'x'))).at(0).reply.kind == Reply::kDone);
  const auto full = handle(table, 0, set(2, "b", std::string(300, 'x')));
  CHECK(full.at(0).reply.kind == Reply::kRefused);
  CHECK(full.at(0).reply.text.find("'b'") != std::string::npos);
  CHECK(handle(table, 0, get(3, "b")).empty());
  CHECK(handle(table, 0, set(4, "a", std::string(900, 'x'))).at(0).reply.kind == Reply::kRefused);
  CHECK(handle(table, 0, get(5, "a")).at(0).reply.text.size() == 700);
  CHECK(handle(table, 0, set(6, "a", "")).at(0).reply.kind == Reply::kDone);
  CHECK(handle(table, 0, set(7, "b", std::string(300, 'x'))).at(0).reply.kind == Reply::kDone);
  for (std::uint64_t i = 0; i < 100; ++i) handle(table, 0, add(10 + i, std::to_string(i), 1));
  CHECK(handle(table, 0, add(999, "last", 1)).at(0).reply.kind == Reply::kRefused);
}

TEST_CASE("one rank's waits are bounded, others' are not touched by it", "[store_table]") {
  StoreTable table(1 << 20, 3);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(handle(table, 1, get(i, "k" + std::to_string(i))).empty());
  CHECK(handle(table, 1, get(3, "k3")).at(0).reply.kind == Reply::kRefused);
  CHECK(handle(table, 2, get(3, "k3")).empty());
  table.forget(1);
  CHECK(handle(table, 1, get(4, "k4")).empty());
  CHECK(handle(table, 1, get(4, "k5")).at(0).reply.kind == Reply::kRefused);  // this id is in use
}

TEST_CASE("what is erased gives its room back, and nothing else goes with it", "[store_table]") {
  StoreTable table(2000);
  handle(table, 0, set(1, "offers/set1", "stays"));
  handle(table, 0, set(2, "offers/set10/0", "stays"));
  for (std::uint64_t round = 0; round < 1000; ++round) {
    CHECK(handle(table, 0, set(10, "offers/set1/0", std::string(500, 'x'))).at(0).reply.kind == Reply::kDone);
    CHECK(handle(table, 0, set(11, "offers/set1/1", std::string(500, 'x'))).at(0).reply.kind == Reply::kDone);
    CHECK(handle(table, 1, add(12, "offers/set1/n", 1)).at(0).reply.sum == 1);
    const auto erase = decode_request(encode(StoreRequest{.kind = Request::kErase, .key = "offers/set1/"}));
    REQUIRE(erase.ok());
    CHECK(handle(table, 0, *erase).empty());
    CHECK(handle(table, 0, get(13, "offers/set1/0")).empty());
    handle(table, 0, {.kind = Request::kCancel, .id = 13});
  }
  handle(table, 0, {.kind = Request::kErase});
  for (const int rank : {0, 1, 2}) {
    CHECK(handle(table, rank, get(16, "offers/set10/0")).at(0).reply.text == "stays");
    const auto erase = decode_request(encode(StoreRequest{.kind = Request::kErase, .key = "offers/set10", .delta = 3}));
    REQUIRE(erase.ok());
    CHECK(handle(table, rank, *erase).empty());
  }
  CHECK(handle(table, 0, get(17, "offers/set10/0")).empty());
  CHECK(handle(table, 0, get(14, "offers/set1")).at(0).reply.text == "stays");
}

}  // namespace
}  // namespace distrun::net
