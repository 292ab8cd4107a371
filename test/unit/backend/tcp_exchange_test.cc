// All members of an exchange in one thread, over socket pairs with small buffers. Members take turns in random order.
// In between, their connections are made one by one.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/tcp/exchange.h"

namespace distrun::backend::tcp {
namespace {

constexpr std::size_t kChunkBytes = 256;

std::pair<Fd, Fd> make_pair() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const int bytes = 4608;  // the minimum in Linux
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  return {Fd(ends[0]), Fd(ends[1])};
}

struct Member {
  Member(const std::vector<int>& members, std::size_t index) : wait_set(*net::WaitSet::create()) {
    exchange = std::make_unique<Exchange>(members, index, kChunkBytes, *wait_set, Duration::max());
    exchange->open();
  }
  bool turn() {
    const bool events = *wait_set->poll(Clock::now()) > 0;
    return exchange->progress(completed) || events;
  }
  void start(std::span<const std::size_t> counts, std::uint64_t token) {
    segment = {.in = reinterpret_cast<const std::byte*>(in.data()),
               .out = reinterpret_cast<std::byte*>(out.data()),
               .count = in.size()};
    exchange->start({.kind = OpKind::kAlltoall, .segments = {&segment, 1}, .counts = counts}, token, token);
  }

  std::unique_ptr<net::WaitSet> wait_set;
  std::unique_ptr<Exchange> exchange;
  std::vector<float> in, out;
  Segment segment;
  std::vector<Completed> completed;
};

std::vector<std::unique_ptr<Member>> make_members(std::size_t size) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < size; ++i) ranks.push_back(static_cast<int>(10 * i + 7));
  std::vector<std::unique_ptr<Member>> members;
  for (std::size_t i = 0; i < size; ++i) members.push_back(std::make_unique<Member>(ranks, i));
  return members;
}

void connect(Member& a, std::size_t a_index, Member& b, std::size_t b_index) {
  auto [one, other] = make_pair();
  a.exchange->connected(b_index, {.fd = std::move(one)});
  b.exchange->connected(a_index, {.fd = std::move(other)});
}

// An element that member `from` sends to member `to`: 100 from + to, plus a fraction that shows its number in the
// block.
float element(std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<float>(from * 100 + to) + static_cast<float>(i % 64) / 64.0F;
}

void check(std::size_t size, std::size_t block, bool even) {
  CAPTURE(size, block, even);
  std::mt19937 random(static_cast<unsigned>(size * 1000 + block));
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < size * size; ++i) counts.push_back(even ? block : block * (i * 7 % 5) / 2);
  const auto members = make_members(size);
  std::vector<std::vector<float>> expected(size);
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = 0; to < size; ++to) {
      for (std::size_t i = 0; i < counts[from * size + to]; ++i) {
        members[from]->in.push_back(element(from, to, i));
        expected[to].push_back(element(from, to, i));
      }
    }
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = a + 1; b < size; ++b) pairs.emplace_back(a, b);
    members[a]->out.assign(expected[a].size(), -1.0F);
    // Two operations: the second one starts while the first is under way.
    for (const std::uint64_t token : {1U, 2U}) members[a]->start(counts, token);
  }
  std::ranges::shuffle(pairs, random);
  for (std::size_t idle = 0; idle < 200 * size;) {
    if (random() % 20 == 0 && !pairs.empty()) {
      const auto [a, b] = pairs.back();
      pairs.pop_back();
      connect(*members[a], a, *members[b], b);
    }
    idle = members[random() % size]->turn() || !pairs.empty() ? 0 : idle + 1;
  }
  for (std::size_t m = 0; m < size; ++m) {
    REQUIRE(members[m]->completed.size() == 2);
    REQUIRE(members[m]->exchange->lost().value_or(EndedLink{}).peer == -1);
    REQUIRE(members[m]->exchange->failure().ok());
    REQUIRE(members[m]->out == expected[m]);
  }
}

// The bytes that can be read at `end`.
std::vector<std::byte> waiting(const Fd& end) {
  std::vector<std::byte> bytes(4096);
  const ssize_t n = ::recv(end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

}  // namespace

TEST_CASE("tcp exchange: blocks of any size arrive in any order of events, and it never locks up") {
  constexpr std::size_t kChunk = kChunkBytes / sizeof(float);
  for (const std::size_t size : {2U, 3U, 4U, 5U, 8U, 13U}) {
    for (const std::size_t block : {std::size_t{0}, std::size_t{1}, kChunk, 40 * kChunk + 3}) {
      for (const bool even : {true, false}) check(size, block, even);
    }
  }
}

TEST_CASE("tcp exchange: a block goes straight to its owner, and an empty one takes no message and no connection") {
  const auto members = make_members(3);
  Member& member = *members[0];
  auto [mine, first] = make_pair();
  member.exchange->connected(1, {.fd = std::move(mine)});
  // Member 0 sends one element to itself, two to member 1 and none to member 2. No member sends anything to it.
  const std::vector<std::size_t> counts{1, 2, 0, 0, 0, 0, 0, 0, 0};
  member.in = {1.0F, 2.0F, 3.0F};
  member.out = {0.0F};
  member.start(counts, 5);
  while (member.turn()) continue;
  CHECK(waiting(first).size() == kHeaderBytes + 2 * sizeof(float));
  REQUIRE(member.completed.size() == 1);
  CHECK(member.completed[0].token == 5);
  CHECK(member.out[0] == 1.0F);
}

TEST_CASE("tcp exchange: nothing completes before the members know where to find each other") {
  const auto wait_set = *net::WaitSet::create();
  Exchange exchange({0, 1}, 0, kChunkBytes, *wait_set, Duration::max());
  const std::vector<std::size_t> counts(4, 0);
  const Segment segment;
  exchange.start({.kind = OpKind::kAlltoall, .segments = {&segment, 1}, .counts = counts}, 1, 1);
  std::vector<Completed> completed;
  while (exchange.progress(completed)) continue;
  CHECK(completed.empty());
  exchange.open();
  CHECK(exchange.progress(completed));
  CHECK(completed.size() == 1);
}

TEST_CASE("tcp exchange: who is gone or cannot be reached is missed by the operations that need it only") {
  for (const bool reached : {true, false}) {
    const auto members = make_members(3);
    Member& member = *members[0];
    auto [mine, theirs] = make_pair();
    const Status why(Errc::kSystem, "no way there");
    if (reached) {
      member.exchange->connected(2, {.fd = std::move(mine)});
    } else {
      member.exchange->unreachable(2, why);
    }
    theirs.reset();
    std::vector<std::size_t> counts(9, 0);
    member.start(counts, 1);
    while (member.turn()) continue;
    CHECK(member.completed.size() == 1);
    CHECK(member.exchange->lost().value_or(EndedLink{}).peer == -1);
    CHECK(member.exchange->failure().ok());
    CHECK_FALSE(member.exchange->needs(27));

    counts[2 * 3] = 1;  // from member 2, whose rank is 27
    member.out = {0.0F};
    member.start(counts, 2);
    CHECK(member.exchange->needs(27));
    CHECK_FALSE(member.exchange->needs(17));
    while (member.turn()) continue;
    CHECK(member.exchange->lost().value_or(EndedLink{}).peer == (reached ? 27 : -1));
    CHECK(member.exchange->failure().ok() == reached);
    if (!reached) CHECK(member.exchange->failure().message() == why.message());
    CHECK(member.completed.size() == 1);
  }
}

TEST_CASE("tcp exchange: who gives up tells the others whose loss it was, and its own operations why") {
  const auto members = make_members(2);
  connect(*members[0], 0, *members[1], 1);
  const std::vector<std::size_t> counts{0, 0, 1, 0};  // from member 1 to member 0
  members[0]->out = {0.0F};
  members[1]->in = {4.0F};
  members[0]->start(counts, 1);
  const Status why(Errc::kRankLost, "rank 99 was lost");
  members[1]->exchange->start({.kind = OpKind::kAlltoall, .segments = {&members[1]->segment, 1}, .counts = counts}, 8,
                              1);
  members[1]->exchange->fail({.kind = MessageKind::kAbort, .rank = 99}, why, members[1]->completed);
  REQUIRE(members[1]->completed.size() == 1);
  CHECK(members[1]->completed[0].status.message() == why.message());
  while (members[0]->turn()) continue;
  CHECK(members[0]->exchange->lost().value_or(EndedLink{}).peer == 99);
  CHECK(members[0]->completed.empty());
}

TEST_CASE("tcp exchange: whom another has lost does not miss itself") {
  const auto members = make_members(2);  // ranks 7 and 17
  connect(*members[0], 0, *members[1], 1);
  members[1]->exchange->fail({.kind = MessageKind::kAbort, .rank = 7}, {Errc::kProtocol, "bad bytes"},
                             members[1]->completed);
  while (members[0]->turn()) continue;
  CHECK(members[0]->exchange->lost().value_or(EndedLink{}).peer == -1);
}

TEST_CASE("tcp exchange: who gives up in the middle of a message is not lost before it is gone") {
  const auto members = make_members(2);
  connect(*members[0], 0, *members[1], 1);
  const std::vector<std::size_t> counts{0, 0, 100000, 0};  // from member 1 to member 0
  members[0]->out.resize(100000);
  members[1]->in.resize(100000);
  for (const auto& member : members) member->start(counts, 1);
  while (members[1]->turn()) continue;  // until the socket is full
  members[1]->exchange->fail({.kind = MessageKind::kAbort}, {Errc::kSystem, "no way"}, members[1]->completed);
  while (members[0]->turn()) continue;
  CHECK(members[0]->exchange->lost().value_or(EndedLink{}).peer == -1);
  CHECK(members[0]->exchange->failure().ok());
  members[1]->exchange.reset();
  while (members[0]->turn()) continue;
  CHECK(members[0]->exchange->lost().value_or(EndedLink{}).peer == 17);
}

TEST_CASE("tcp exchange: once a member has given up, nobody who cannot be reached is the cause") {
  for (const bool heard_here : {true, false}) {
    const auto members = make_members(3);
    connect(*members[0], 0, *members[1], 1);
    const std::vector<std::size_t> counts(9, 1);
    members[0]->in = members[0]->out = {0.0F, 0.0F, 0.0F};
    members[0]->start(counts, 1);
    if (heard_here) {
      members[1]->exchange->fail({.kind = MessageKind::kAbort}, {Errc::kSystem, "no way"}, members[1]->completed);
      while (members[0]->turn()) continue;
    } else {
      members[0]->exchange->others_gave_up();
    }
    members[0]->exchange->unreachable(2, {Errc::kSystem, "connecting failed"});
    while (members[0]->turn()) continue;
    CHECK(members[0]->exchange->failure().ok());
    CHECK(members[0]->exchange->lost().value_or(EndedLink{}).peer == -1);
    CHECK(members[0]->completed.empty());
  }
}

TEST_CASE("tcp exchange: the first failure stays") {
  const auto members = make_members(3);
  members[0]->exchange->connected(1, {.fd = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))});  // cannot be watched
  auto [mine, theirs] = make_pair();
  members[0]->exchange->connected(2, {.fd = std::move(mine)});
  CHECK_FALSE(members[0]->exchange->failure().ok());
}

TEST_CASE("tcp exchange: without the counts of all pairs nothing starts") {
  const auto members = make_members(2);
  const std::vector<std::size_t> counts(2, 1);
  CHECK_THROWS_AS(members[0]->start(counts, 1), std::logic_error);
}

TEST_CASE("tcp exchange: members that do not run the same operations get a protocol error, not wrong blocks") {
  const auto members = make_members(2);
  connect(*members[0], 0, *members[1], 1);
  const std::vector<std::size_t> one{0, 0, 1, 0};
  const std::vector<std::size_t> two{0, 0, 2, 0};
  members[0]->out = {0.0F, 0.0F};
  members[1]->in = {4.0F};
  members[0]->start(two, 1);
  members[1]->start(one, 1);
  for (const auto& member : {members[1].get(), members[0].get()}) {
    while (member->turn()) continue;
  }
  CHECK(members[0]->exchange->failure().code() == Errc::kProtocol);
  CHECK(members[0]->exchange->failure().message().find("where message 0 of alltoall 1 (float32, 8 bytes)") !=
        std::string::npos);
}

}  // namespace distrun::backend::tcp
