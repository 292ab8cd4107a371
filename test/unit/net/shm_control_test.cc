#include "runtime/net/control/shm_control.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <thread>

#include "runtime/net/bytes/wait_set.h"
#include "runtime/net/host/shm_ring.h"
#include "test/support/fake_host_link.h"
#include "test/support/ranks.h"

namespace distrun::net {
namespace {

using test::FakeHost;
using test::FakeHostLink;
using test::run_ranks;
using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 9) + seed);
  return bytes;
}

// One rank. It sleeps whenever it has nothing to do, so the test hangs if a wake-up is lost.
struct Rank {
  Rank(FakeHost& host, int rank, int size) {
    auto made = WaitSet::create();
    EXPECT_OK(made);
    wait_set = *std::move(made);
    link = host.link(rank, wait_set.get());
    const World world{.rank = rank, .size = size};
    auto connected = connect_shm_control(*link, world, deadline_after(30));
    EXPECT_OK(connected);
    plane = *std::move(connected);
  }
  // Makes progress until `done` was true once. Blocks when nothing moves.
  void until(const std::function<bool()>& done) {
    bool is_done = false;
    const auto look = [&] {
      const bool moved = plane->progress();
      is_done = is_done || done();
      return moved || is_done;
    };
    while (!is_done) {
      if (look()) continue;
      const auto polled = wait_set->poll(deadline_after(45), look);
      if (!polled.ok() && polled.status().code() != Errc::kInterrupted) EXPECT_OK(polled);
    }
  }
  Received next() {
    Received message;
    until([&] { return plane->receive(message); });
    return message;
  }
  // Waits without reading messages.
  void wait_until_gone(int rank) {
    while (!link->gone(rank)) EXPECT_OK(wait_set->poll(deadline_after(45)));
  }

  std::unique_ptr<WaitSet> wait_set;
  std::unique_ptr<FakeHostLink> link;
  std::unique_ptr<ControlPlane> plane;
};

TEST_CASE("messages of all sizes go both ways, whole and in order", "[shm_control]") {
  const std::vector<std::size_t> sizes = {
      0, 1, 5, 4096, RingMemory::kBytes - 5, RingMemory::kBytes - 4, 65'533, 65'536, 70'000, 1'000'000, 3};
  for (const int size : {1, 2, 3, 5, 8}) {
    CAPTURE(size);
    FakeHost host(size);
    run_ranks(size, [&](int rank) {
      Rank self(host, rank, size);
      EXPECT_EQ(self.plane->rank(), rank);
      EXPECT_EQ(self.plane->size(), size);
      if (rank != 0) {
        for (unsigned i = 0; i < sizes.size(); ++i) EXPECT_OK(self.plane->send(0, pattern(sizes[i], i)));
        for (unsigned i = 0; i < sizes.size(); ++i) {
          const Received message = self.next();
          EXPECT_EQ(message.from, 0);
          EXPECT(message.bytes == pattern(sizes[i], i + static_cast<unsigned>(i % 2 == 0 ? 0 : rank)));
        }
      } else {
        std::vector<unsigned> count(static_cast<std::size_t>(size));
        for (std::size_t left = sizes.size() * (count.size() - 1); left > 0; --left) {
          const Received message = self.next();
          unsigned& i = count[static_cast<std::size_t>(message.from)];
          EXPECT(message.bytes == pattern(sizes[i], i));
          ++i;
        }
        for (unsigned i = 0; i < sizes.size(); ++i) {
          if (i % 2 == 0) EXPECT_OK(self.plane->broadcast(pattern(sizes[i], i)));
          for (int to = 1; i % 2 == 1 && to < size; ++to)
            EXPECT_OK(self.plane->send(to, pattern(sizes[i], i + static_cast<unsigned>(to))));
        }
      }
      self.until([&] { return !self.plane->pending(); });
      EXPECT(!self.plane->progress());
    });
  }
}

TEST_CASE("the largest message flows through; one byte more is refused", "[shm_control]") {
  FakeHost host(2);
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  std::atomic<int> sent{0};
  run_ranks(2, [&](int rank) {
    Rank self(host, rank, 2);
    Bytes largest(kLargest, std::byte{7});
    for (std::size_t i = 0; i < kLargest; i += 60'000) largest[i] = static_cast<std::byte>(i / 60'000);
    EXPECT_OK(self.plane->send(1 - rank, largest));
    EXPECT_EQ(self.plane->send(1 - rank, Bytes(kLargest + 1)).code(), Errc::kInvalidArgument);
    EXPECT(self.plane->pending());
    sent.fetch_add(1);
    while (sent.load() < 2) std::this_thread::yield();  // otherwise everything might have gone through
    EXPECT(self.next().bytes == largest);
    self.until([&] { return !self.plane->pending(); });
  });
}

TEST_CASE("what a reader that stops has still to take is counted, and comes in order when it reads on",
          "[shm_control]") {
  FakeHost host(2);
  std::atomic<bool> read_on{false};
  constexpr std::size_t kBytes = 50'000;
  run_ranks(2, [&](int rank) {
    Rank self(host, rank, 2);
    if (rank == 1) {
      read_on.wait(false);
      for (unsigned i = 0; i < 100; ++i) EXPECT(self.next().bytes == pattern(kBytes, i));
      return;
    }
    for (unsigned i = 0; i < 100; ++i) {
      EXPECT_OK(self.plane->broadcast(pattern(kBytes, i)));
      self.plane->progress();
    }
    const std::size_t queued = self.plane->queued().most;
    EXPECT(queued > 100 * kBytes - RingMemory::kBytes && queued < 100 * (kBytes + 4));
    read_on = true;
    read_on.notify_all();
    self.until([&] { return !self.plane->pending(); });
    EXPECT_EQ(self.plane->queued().most, 0U);
    EXPECT_EQ(self.plane->queued().all, 0U);
  });
}

TEST_CASE("members do not talk to each other", "[shm_control]") {
  FakeHost host(3);
  run_ranks(3, [&](int rank) {
    Rank self(host, rank, 3);
    EXPECT_EQ(self.plane->send(rank == 0 ? 3 : 2, {}).code(), Errc::kInvalidArgument);
  });
}

TEST_CASE("ping-pong with random sleeps loses no wake-up", "[shm_control]") {
  constexpr int kRounds = 10'000;
  for (const int size : {2, 4}) {
    FakeHost host(size);
    run_ranks(size, [&](int rank) {
      Rank self(host, rank, size);
      std::minstd_rand random(static_cast<unsigned>(rank) + 1);
      for (unsigned round = 0; round < kRounds; ++round) {
        if (random() % 32 == 0) std::this_thread::yield();
        const Bytes message = pattern(random() % 3000, round);
        if (rank == 0) {
          EXPECT_OK(self.plane->broadcast(message));
          for (int member = 1; member < size; ++member) EXPECT(self.next().bytes == message);
        } else {
          EXPECT_OK(self.plane->send(0, self.next().bytes));
        }
      }
    });
  }
}

TEST_CASE("a dead member is lost to the leader after its last message, and to the leader alone", "[shm_control]") {
  FakeHost host(3);
  std::atomic<bool> checked{false};
  run_ranks(3, [&](int rank) {
    Rank self(host, rank, 3);
    if (rank == 2) {
      for (unsigned i = 0; i < 6; ++i) EXPECT_OK(self.plane->send(0, pattern(60'000, i)));
      self.until([&] { return !self.plane->pending(); });
      return self.link->die();
    }
    if (rank == 1) {
      self.wait_until_gone(2);
      EXPECT(!self.plane->lost());
      return checked.wait(false);
    }
    for (unsigned i = 0; i < 5; ++i) EXPECT(self.next().bytes == pattern(60'000, i));
    self.wait_until_gone(2);
    EXPECT_EQ(self.link->lost().value_or(-1), 2);
    EXPECT(!self.plane->lost());
    EXPECT(self.next().bytes == pattern(60'000, 5));
    EXPECT_EQ(self.plane->lost().value_or(EndedLink{}).peer, 2);
    EXPECT_EQ(self.plane->send(2, {}).code(), Errc::kRankLost);
    EXPECT_EQ(self.plane->send(2, {}).info().ranks, std::vector<int>{2});
    EXPECT_OK(self.plane->broadcast(pattern(10, 0)));
    checked = true;
    checked.notify_all();
  });
}

TEST_CASE("a leader that is gone is lost to every member", "[shm_control]") {
  FakeHost host(3);
  run_ranks(3, [&](int rank) {
    Rank self(host, rank, 3);
    if (rank == 0) return;  // with a goodbye: for the control plane every end is the same
    self.until([&] { return self.plane->lost().has_value(); });
    EXPECT_EQ(self.plane->lost()->peer, 0);
    EXPECT(!self.link->lost());
  });
}

TEST_CASE("memory that makes no sense ends the connection, and nothing is read from it", "[shm_control]") {
  const auto with_ring = [](const std::function<void(RingMemory&)>& spoil) {
    FakeHost host(2);
    const World leader{.rank = 0, .size = 2};
    auto link = host.link(0, nullptr);
    auto other = host.link(1, nullptr);
    auto plane = connect_shm_control(*link, leader, deadline_after(5));
    REQUIRE(plane.ok());
    auto memory = other->share("control", {0, 1}, 2 * sizeof(RingMemory), deadline_after(5));
    spoil(*reinterpret_cast<RingMemory*>(memory->bytes.data()));
    Received message;
    CHECK_FALSE((*plane)->receive(message));
    (*plane)->progress();
    CHECK((*plane)->lost().value_or(EndedLink{}).peer == 1);
    CHECK((*plane)->send(1, {}).code() == Errc::kRankLost);
  };
  with_ring([](RingMemory& ring) {  // a length of 4 GiB
    ring.bytes.fill(std::byte{0xff});
    ring.head = 100;
  });
  with_ring([](RingMemory& ring) { ring.head = RingMemory::kBytes + 1; });
  with_ring([](RingMemory& ring) {
    ring.bytes.fill(std::byte{0xff});
    ring.head = std::uint64_t{1} << 63;
  });
}

}  // namespace
}  // namespace distrun::net
