#include "runtime/net/host/doorbell.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <thread>

#include "runtime/base/fd.h"

namespace distrun::net {
namespace {

bool readable(int fd, int milliseconds = 0) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, milliseconds) == 1;
}

struct Pair {
  DoorbellLine lines[2];
  Fd fds[2] = {Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
  Doorbells make(int self) { return {{&lines[0], &lines[1]}, {fds[0].get(), fds[1].get()}, self}; }
};

TEST_CASE("a ring writes the eventfd of a sleeper, once for each sleep, and of nobody else") {
  Pair pair;
  Doorbells sleeper = pair.make(0);
  Doorbells writer = pair.make(1);
  writer.ring(0);
  CHECK_FALSE(readable(pair.fds[0].get()));

  sleeper.arm();
  writer.ring(0);
  CHECK(readable(pair.fds[0].get()));
  sleeper.drain();
  writer.ring(0);  // the same sleep: the wake-up is already on its way
  CHECK_FALSE(readable(pair.fds[0].get()));
  sleeper.disarm();
  writer.ring(0);
  CHECK_FALSE(readable(pair.fds[0].get()));

  sleeper.arm();
  sleeper.arm();  // arming twice is one sleep
  writer.ring(0);
  CHECK(readable(pair.fds[0].get()));
  sleeper.drain();
  sleeper.disarm();
  sleeper.disarm();
  CHECK_FALSE(readable(pair.fds[1].get()));
}

TEST_CASE("goodbye is seen by the others") {
  Pair pair;
  Doorbells one = pair.make(0);
  Doorbells other = pair.make(1);
  CHECK_FALSE(other.goodbye_sent(0));
  one.send_goodbye();
  CHECK(other.goodbye_sent(0));
  CHECK_FALSE(one.goodbye_sent(1));
}

// One side of a ping-pong. It spins for a random time before it sleeps, so that all orders of store, ring, arm and look
// occur. After a lost wake-up, the inner poll times out after 60 s.
bool ping_pong(Pair& pair, std::atomic<int>& flag, int self, int rounds) {
  Doorbells bells = pair.make(self);
  std::minstd_rand random(static_cast<unsigned>(self) + 7);
  for (int round = self; round < rounds; round += 2) {
    const auto mine = [&] { return flag.load(std::memory_order_seq_cst) == round; };
    unsigned spins = random() % 64 == 0 ? 2000 : random() % 8;
    while (!mine() && spins > 0) --spins;
    while (!mine()) {
      bells.arm();
      const bool slept_through = !mine() && !readable(pair.fds[self].get(), 60'000);
      if (readable(pair.fds[self].get())) bells.drain();
      bells.disarm();
      if (slept_through) return false;
    }
    if (random() % 16 == 0) std::this_thread::yield();
    flag.store(round + 1, std::memory_order_seq_cst);
    bells.ring(1 - self);
  }
  return true;
}

TEST_CASE("no wake-up is lost in 200,000 hand-overs with random sleeps") {
  Pair pair;
  std::atomic<int> flag{0};
  bool other_finished = false;
  std::thread other([&] { other_finished = ping_pong(pair, flag, 1, 200'000); });
  const bool finished = ping_pong(pair, flag, 0, 200'000);
  other.join();
  CHECK(finished);
  CHECK(other_finished);
}

}  // namespace
}  // namespace distrun::net
