#include "runtime/net/bytes/wait_set.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runtime/base/fd.h"
#include "runtime/base/thread.h"

namespace distrun::net {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  void write() const { REQUIRE(::write(write_end.get(), "x", 1) == 1); }
  void read() const {
    char byte = 0;
    REQUIRE(::read(read_end.get(), &byte, 1) == 1);
  }
  Fd read_end;
  Fd write_end;
};

std::unique_ptr<WaitSet> make_wait_set() {
  auto made = WaitSet::create();
  REQUIRE(made.ok());
  return *std::move(made);
}

class CountingSleepable : public Sleepable {
 public:
  void arm() override { ++armed; }
  void disarm() override { ++disarmed; }
  int armed = 0;
  int disarmed = 0;
};

TEST_CASE("ready descriptors run their callbacks, which may remove themselves", "[net]") {
  const auto wait_set = make_wait_set();
  const Pipe pipe;
  int calls = 0;
  REQUIRE(wait_set
              ->add(pipe.read_end.get(), EPOLLIN,
                    [&](std::uint32_t) {
                      ++calls;
                      if (calls == 2) wait_set->remove(pipe.read_end.get());
                    })
              .ok());
  CHECK(*wait_set->poll({}) == 0);
  pipe.write();
  CHECK(*wait_set->poll(TimePoint::max()) == 1);
  CHECK(*wait_set->poll(TimePoint::max()) == 1);  // level-triggered: the byte is still there
  CHECK(*wait_set->poll({}) == 0);
  CHECK(calls == 2);
}

TEST_CASE("a descriptor is watched once", "[net]") {
  const auto wait_set = make_wait_set();
  const Pipe pipe;
  REQUIRE(wait_set->add(pipe.read_end.get(), EPOLLIN, [](std::uint32_t) {}).ok());
  CHECK_FALSE(wait_set->add(pipe.read_end.get(), EPOLLIN, [](std::uint32_t) {}).ok());
}

TEST_CASE("wake ends a wait that blocks and one that is about to", "[net]") {
  const auto wait_set = make_wait_set();
  wait_set->wake();
  CHECK(*wait_set->poll(TimePoint::max()) == 0);
  std::jthread waker([&] { wait_set->wake(); });
  CHECK(*wait_set->poll(TimePoint::max()) == 0);
}

TEST_CASE("the deadline ends the wait", "[net]") {
  const auto wait_set = make_wait_set();
  const TimePoint until = Clock::now() + std::chrono::milliseconds(20);
  CHECK(*wait_set->poll(until) == 0);
  CHECK(Clock::now() >= until);
}

TEST_CASE("sleepables are armed only around a wait that may block, and memory is looked at in between", "[net]") {
  const auto wait_set = make_wait_set();
  CountingSleepable sleepable;
  wait_set->add_sleepable(&sleepable);
  CHECK(*wait_set->poll({}) == 0);
  CHECK(sleepable.armed == 0);
  int looks = 0;
  CHECK(*wait_set->poll(TimePoint::max(), [&] {
    CHECK(sleepable.armed == 1);
    ++looks;
    return true;  // found work: must not block
  }) == 0);
  CHECK(looks == 1);
  CHECK(sleepable.disarmed == 1);
  wait_set->remove_sleepable(&sleepable);
  CHECK(*wait_set->poll(Clock::now() + std::chrono::milliseconds(1)) == 0);
  CHECK(sleepable.armed == 1);
}

TEST_CASE("a signal interrupts the wait", "[net]") {
  const auto wait_set = make_wait_set();
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  const pthread_t waiter = ::pthread_self();
  std::atomic<bool> over = false;
  // The sender repeats the signal, because one signal may arrive before the wait has begun.
  auto sender = named_thread("sender", [&] {
    while (!over.load()) {
      ::pthread_kill(waiter, SIGUSR1);
      std::this_thread::yield();
    }
  });
  REQUIRE(sender.ok());
  Result<int> result = 0;
  while (result.ok()) result = wait_set->poll(TimePoint::max());
  over = true;
  sender->join();
  CHECK(result.status().code() == Errc::kInterrupted);
  ::sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace distrun::net
