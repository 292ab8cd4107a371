#include "launcher/agent/head_connection.h"

#include <poll.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

#include "launcher/spawn/process.h"

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Both ends of it, over two pipes.
struct Connected {
  Connected() {
    auto down = make_pipe();
    auto up = make_pipe();
    REQUIRE((down.ok() && up.ok()));
    head = FramePipe(std::move(up->first), std::move(down->second));
    agent.emplace(FramePipe(std::move(down->first), std::move(up->second)));
  }
  std::vector<Frame> at_head() {
    Poller poller;
    agent->watch(poller, [] {});
    REQUIRE(poller.wait(Clock::now()).ok());
    return head.receive();
  }
  FramePipe head;
  std::optional<HeadConnection> agent;
};

TEST_CASE("messages to the head are frames of their type") {
  Connected both;
  both.agent->send(FromAgent::kStarted, RankStarted{.rank = 3, .pid = 7});
  both.agent->note("text");
  const auto frames = both.at_head();
  REQUIRE(frames.size() == 2);
  CHECK(decode<RankStarted>(frames[0].payload)->rank == 3);
  CHECK(static_cast<FromAgent>(frames[1].type) == FromAgent::kNote);
}

TEST_CASE("foreign bytes of the head's begin a message that is never whole, and are its end") {
  Connected both;
  both.agent->start_heartbeat(milliseconds(1500), Clock::now());
  std::vector<std::byte> foreign(777);
  foreign[2] = std::byte{0x40};  // 4 MiB
  REQUIRE(::write(both.head.out(), foreign.data(), foreign.size()) == 777);
  // The head lives: its signs of life are swallowed.
  const TimePoint begun = Clock::now();
  const TimePoint end = begun + seconds(30);
  while (!both.agent->beat(Clock::now()) && Clock::now() < end) {
    both.head.send(static_cast<std::uint8_t>(ToAgent::kAlive), {});
    CHECK(both.agent->receive().empty());
    ::poll(nullptr, 0, 50);
  }
  CHECK(both.agent->closed());
  CHECK(Clock::now() - begun >= milliseconds(1500));
}

TEST_CASE("signs of life are given every second, and silence of the head is its end") {
  Connected both;
  const TimePoint start = Clock::now();
  CHECK_FALSE(both.agent->deadline());
  CHECK_FALSE(both.agent->beat(start + seconds(100)));  // nobody has asked for it
  both.agent->start_heartbeat(milliseconds(2500), start);
  CHECK(both.agent->deadline() == start + seconds(1));
  CHECK_FALSE(both.agent->beat(start + seconds(1)));
  const auto frames = both.at_head();
  REQUIRE(frames.size() == 1);
  CHECK(static_cast<FromAgent>(frames[0].type) == FromAgent::kAlive);
  CHECK_FALSE(both.agent->beat(start + seconds(2)));
  CHECK(both.agent->beat(start + milliseconds(2600)));
  CHECK(both.agent->closed());
  CHECK_FALSE(both.agent->beat(start + seconds(9)));  // it is told once
  CHECK_FALSE(both.agent->deadline());
}

TEST_CASE("a head that has said so may be silent until it says something") {
  Connected both;
  const TimePoint start = Clock::now();
  both.agent->start_heartbeat(milliseconds(1500), start);
  both.agent->hold(true);
  CHECK_FALSE(both.agent->deadline());
  CHECK_FALSE(both.agent->beat(start + seconds(9)));
  both.head.send(static_cast<std::uint8_t>(ToAgent::kAlive), encode(Alive{}));
  both.head.flush();
  CHECK(both.agent->receive().size() == 1);
  CHECK(both.agent->deadline());
}

TEST_CASE("an agent leaves when the head has taken everything") {
  constexpr std::size_t kText = 1 << 20;  // more than a pipe holds
  Connected both;
  both.agent->note(std::string(kText, 'x'));
  std::size_t taken = 0;
  std::thread reader([&] {
    Poller poller;
    while (taken < kText && !both.head.closed()) {
      poller.clear();
      poller.watch(both.head.in(), POLLIN, [](short) {});
      if (!poller.wait(std::nullopt).ok()) return;
      for (const Frame& frame : both.head.receive()) taken += frame.payload.size();
    }
  });
  Poller poller;
  both.agent->drain(poller, [] {});
  reader.join();
  CHECK(taken == kText);
}

}  // namespace
}  // namespace distrun::launcher
