// All members of a ring in one thread, over socket pairs with small buffers. Members take turns in random order.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/tcp/pairwise.h"
#include "runtime/backend/tcp/ring_exchange.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::backend::tcp {
namespace {

constexpr Tuning kSmall{.chunk_bytes = 256, .window = 2};

std::pair<GuardedFd, GuardedFd> make_link() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const int bytes = 4608;  // the minimum in Linux
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  return {GuardedFd(Fd(ends[0])), GuardedFd(Fd(ends[1]))};
}

struct Seat {
  std::unique_ptr<net::WaitSet> wait_set = *net::WaitSet::create();
  std::unique_ptr<RingExchange> ring;
  std::vector<float> data;
  Segment segment;
  std::vector<Completed> completed;

  void start(Operation operation, std::uint64_t number) {
    segment = {.in = reinterpret_cast<const std::byte*>(data.data()),
               .out = reinterpret_cast<std::byte*>(data.data()),
               .count = data.size()};
    operation.segments = {&segment, 1};
    REQUIRE(ring->start(operation, 100 + number, number).ok());
  }
  bool turn() {
    const bool events = *wait_set->poll(Clock::now()) > 0;
    return ring->progress(completed) || events;
  }
};

// Member i has world rank 10 + i.
std::vector<Seat> make_seats(std::size_t size) {
  std::vector<Ring> rings(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t right = (i + 1) % size;
    auto [out, in] = make_link();
    rings[i].size = size;
    rings[i].index = i;
    rings[i].rank = static_cast<int>(10 + i);
    rings[i].right = std::move(out);
    rings[i].right_rank = static_cast<int>(10 + right);
    rings[right].left = std::move(in);
    rings[right].left_rank = static_cast<int>(10 + i);
  }
  std::vector<Seat> seats(size);
  for (std::size_t i = 0; i < size; ++i) {
    seats[i].ring = std::make_unique<RingExchange>(std::move(rings[i]), kSmall, seats[i].wait_set.get());
    REQUIRE(seats[i].ring->watch().ok());
  }
  return seats;
}

void run(std::vector<Seat>& seats) {
  std::mt19937 random(7);
  for (std::size_t idle = 0; idle < 200 * seats.size();) {
    idle = seats[random() % seats.size()].turn() ? 0 : idle + 1;
  }
}

}  // namespace

TEST_CASE("tcp ring exchange: operations run in their order and all of them end") {
  for (const std::size_t size : {2U, 3U, 5U}) {
    auto seats = make_seats(size);
    for (std::size_t i = 0; i < size; ++i) {
      seats[i].data.assign(5000, static_cast<float>(i + 1));
      seats[i].start({}, 1);
      seats[i].start({.postscale = 0.5}, 2);  // it scales the sums of the first operation, which runs before it
    }
    run(seats);
    const auto members = static_cast<float>(size);
    const float sum = members * (members + 1) / 2;
    for (const Seat& seat : seats) {
      REQUIRE(seat.completed.size() == 2);
      CHECK(seat.completed[0].token == 101);
      CHECK(seat.completed[1].token == 102);
      CHECK(std::ranges::count(seat.data, sum * members / 2) == 5000);
      CHECK(seat.ring->lost().value_or(EndedLink{}).peer == -1);
      CHECK(seat.ring->failure().ok());
    }
  }
}

TEST_CASE("tcp ring exchange: a neighbour that is gone is lost to the operations that need it only") {
  auto seats = make_seats(3);
  seats[0].ring.reset();
  while (seats[1].turn()) continue;
  CHECK(seats[1].ring->lost().value_or(EndedLink{}).peer == -1);
  CHECK(seats[1].ring->left_gone()->peer == 10);
  seats[1].data = {1.0F};
  seats[1].start({}, 1);
  while (seats[1].turn()) continue;
  CHECK(seats[1].ring->lost().value_or(EndedLink{}).peer == 10);
  CHECK(seats[1].completed.empty());
  CHECK_FALSE(seats[1].ring->neighbour_gave_up());
}

// A failed connection sends no goodbye, and the next operation may not come for hours.
TEST_CASE("tcp ring exchange: a connection that fails counts while nothing uses it, and says how it ended") {
  net::Address address{.host = "127.0.0.1"};
  const Fd listener = *net::listen_stream(address);
  Fd left = *net::connect_stream(address, deadline_after(30));
  REQUIRE(net::wait_ready(listener.get(), POLLIN, deadline_after(30)).ok());
  Fd there = *net::accept_stream(listener.get());
  const auto wait_set = *net::WaitSet::create();
  RingExchange ring({.size = 3,
                     .index = 1,
                     .left_rank = 10,
                     .right_rank = 12,
                     .left = GuardedFd(std::move(left)),
                     .right = std::move(make_link().first)},
                    kSmall, wait_set.get());
  REQUIRE(ring.watch().ok());
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(there.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
  there.reset();
  std::vector<Completed> completed;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(wait_set->poll(Clock::now()).ok());
    ring.progress(completed);
  }
  REQUIRE(ring.lost());
  CHECK(ring.lost()->peer == 10);
  CHECK(ring.lost()->end == LinkEnd::kReset);
  CHECK_FALSE(ring.lost()->how.empty());
}

TEST_CASE("tcp ring exchange: who gives up tells both neighbours whose loss it was") {
  auto seats = make_seats(3);
  seats[0].data = {1.0F};
  seats[0].start({}, 1);
  const Status why(Errc::kRankLost, "rank 99 was lost");
  seats[0].ring->fail({.kind = MessageKind::kAbort, .rank = 99}, why, seats[0].completed);
  REQUIRE(seats[0].completed.size() == 1);
  CHECK(seats[0].completed[0].token == 101);
  CHECK(seats[0].completed[0].status.message() == why.message());
  for (const std::size_t neighbour : {1U, 2U}) {
    while (seats[neighbour].turn()) continue;
    CHECK(seats[neighbour].ring->neighbour_gave_up());
    CHECK(seats[neighbour].ring->lost().value_or(EndedLink{}).peer == 99);
    CHECK(seats[neighbour].ring->left_gone() == nullptr);
  }
}

TEST_CASE("tcp ring exchange: whom a neighbour has lost does not miss itself") {
  auto seats = make_seats(3);
  seats[0].ring->fail({.kind = MessageKind::kAbort, .rank = 11}, {Errc::kProtocol, "bad bytes"}, seats[0].completed);
  for (const std::size_t neighbour : {1U, 2U}) {
    while (seats[neighbour].turn()) continue;
    CHECK(seats[neighbour].ring->neighbour_gave_up());
    CHECK(seats[neighbour].ring->lost().value_or(EndedLink{}).peer == (neighbour == 1 ? -1 : 11));
  }
}

TEST_CASE("tcp ring exchange: a neighbour that says goodbye is not lost") {
  auto seats = make_seats(2);
  seats[0].ring->send_last_message({.kind = MessageKind::kGoodbye});
  while (seats[1].turn()) continue;
  CHECK(seats[1].ring->lost().value_or(EndedLink{}).peer == -1);
  CHECK_FALSE(seats[1].ring->neighbour_gave_up());
  CHECK(seats[1].ring->left_gone()->peer == 10);
}

TEST_CASE("tcp ring exchange: members that do not run the same operations get a protocol error") {
  auto seats = make_seats(2);
  seats[0].data = {1.0F};
  seats[1].data = {1.0F, 2.0F};
  for (Seat& seat : seats) seat.start({.kind = OpKind::kBroadcast, .root = 0}, 1);
  while (seats[0].turn()) continue;
  // The following bytes stay unread, so the socket keeps waking this member until the engine aborts.
  for (int turns = 0; turns < 100 && seats[1].ring->failure().ok(); ++turns) seats[1].turn();
  CHECK(seats[1].ring->failure().code() == Errc::kProtocol);
  CHECK(seats[1].ring->failure().message().find("broadcast 1") != std::string::npos);
  CHECK(seats[1].completed.empty());
}

TEST_CASE("tcp pairwise: transfers keep their numbers while those before them go") {
  const std::vector<std::size_t> nothing(4, 0);
  const std::vector<std::size_t> one_way{2, 3, 0, 5};  // member 0: 2 to itself, 3 to member 1
  PairwiseTransfers transfers;
  CHECK(transfers.first_to_send() == transfers.end());
  transfers.push(make_pairwise({.counts = nothing}, 1, 1, 0, 2));
  transfers.push(make_pairwise({.counts = one_way}, 2, 2, 0, 2));
  CHECK(transfers.first_to_send() == 1);
  CHECK(transfers[1].bytes_to(1) == 3 * sizeof(float));
  CHECK(transfers[1].bytes_from(1) == 0);
  CHECK(transfers[1].sends == 1);
  CHECK(transfers[1].receives == 0);
  transfers.pop();
  CHECK(transfers.first() == 1);
  CHECK(transfers[1].token == 2);
  const Header header = transfers[1].header(8, 12, 8);
  CHECK(header.index == 1);
  CHECK(header.bytes == 4);
  CHECK(header.sequence == 2);
}

}  // namespace distrun::backend::tcp
