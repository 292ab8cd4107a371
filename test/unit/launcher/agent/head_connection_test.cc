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

// Both ends of the connection, over two pipes.
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

void say(Connected& both, const Alive& word, BootTime now) { both.agent->on(word, now); }

TEST_CASE("foreign bytes of the head's begin a message that is never whole, and its answers are lost in it") {
  Connected both;
  both.agent->start_lease(milliseconds(1500), boot_time());
  std::vector<std::byte> foreign(777);
  foreign[2] = std::byte{0x40};  // a length of 4 MiB
  REQUIRE(::write(both.head.out(), foreign.data(), foreign.size()) == 777);
  const BootTime begun = boot_time();
  const BootTime end = begun + seconds(30);
  while (!both.agent->send_heartbeat(boot_time()) && boot_time() < end) {
    both.head.send(static_cast<std::uint8_t>(ToAgent::kAlive), encode(Alive{.sent = boot_time().count()}));
    CHECK(both.agent->receive().empty());
    ::poll(nullptr, 0, 50);
  }
  CHECK(both.agent->lease().over(boot_time()));
  CHECK(boot_time() - begun >= milliseconds(1500));
}

TEST_CASE("signs of life are given every second, and a head that does not answer them ends the lease") {
  Connected both;
  const BootTime start = boot_time();
  CHECK_FALSE(both.agent->deadline());
  CHECK_FALSE(both.agent->send_heartbeat(start + seconds(100)));  // not asked for yet
  both.agent->start_lease(milliseconds(2500), start);
  REQUIRE(both.agent->deadline());
  CHECK_FALSE(both.agent->send_heartbeat(start + seconds(1)));
  auto frames = both.at_head();
  REQUIRE(frames.size() == 1);
  REQUIRE(static_cast<FromAgent>(frames[0].type) == FromAgent::kAlive);
  const auto heartbeat = decode<Heartbeat>(frames[0].payload);
  REQUIRE(heartbeat.ok());
  CHECK_FALSE(both.agent->send_heartbeat(start + seconds(2)));
  say(both, {.what = Alive::What::kAnswer, .sent = heartbeat->sent}, start + milliseconds(2200));
  CHECK_FALSE(both.agent->send_heartbeat(start + milliseconds(3499)));
  CHECK(both.agent->send_heartbeat(start + milliseconds(3500)));
  CHECK_FALSE(both.agent->send_heartbeat(start + milliseconds(3600)));  // reported only once
  both.agent->note("the last word");
  frames = both.at_head();
  CHECK(static_cast<FromAgent>(frames.back().type) == FromAgent::kNote);
  CHECK_FALSE(both.agent->closed());
  CHECK_FALSE(both.agent->send_heartbeat(start + milliseconds(4500)));
  CHECK(both.agent->closed());
  CHECK_FALSE(both.agent->deadline());
}

TEST_CASE("a head that has said so may be silent until it goes on") {
  Connected both;
  const BootTime start = boot_time();
  both.agent->start_lease(milliseconds(1500), start);
  say(both, {.what = Alive::What::kHold}, start);
  CHECK_FALSE(both.agent->deadline());
  CHECK_FALSE(both.agent->send_heartbeat(start + seconds(9)));
  say(both, {.what = Alive::What::kResume}, start + seconds(9));
  CHECK(both.agent->deadline());
  CHECK_FALSE(both.agent->send_heartbeat(start + seconds(9)));
  const auto frames = both.at_head();
  REQUIRE(frames.size() == 1);
  CHECK(decode<Heartbeat>(frames[0].payload)->ready);
}

TEST_CASE("an agent that was stopped for long has its last words too") {
  Connected both;
  const BootTime start = boot_time();
  both.agent->start_lease(seconds(5), start);
  CHECK(both.agent->send_heartbeat(start + seconds(500)));
  both.agent->note("the last word");
  CHECK(both.at_head().size() == 1);
  CHECK_FALSE(both.agent->send_heartbeat(start + seconds(500)));
  CHECK_FALSE(both.agent->closed());
}

TEST_CASE("an agent whose lease is over does not wait for a head that reads nothing") {
  Connected both;
  both.agent->start_lease(milliseconds(100), boot_time() - seconds(1));
  CHECK(both.agent->send_heartbeat(boot_time()));
  both.agent->note(std::string(1 << 20, 'x'));  // more than a pipe holds
  Poller poller;
  both.agent->drain(poller, [] {});
  CHECK(both.agent->closed());
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
