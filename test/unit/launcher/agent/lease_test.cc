// The lease of an agent, alone and together with the head's decisions about silent hosts.
#include "launcher/agent/lease/lease.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>

#include "launcher/agent/lease/lease_end.h"
#include "launcher/job/agents/host_silence.h"

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr BootTime kStart = std::chrono::hours(5);
BootTime after(int ms) { return kStart + milliseconds(ms); }

TEST_CASE("a lease runs from when the newest message that was answered was sent") {
  Lease lease(seconds(30), kStart);
  CHECK(lease.end() == after(30'000));
  CHECK_FALSE(lease.send_sign(after(999)));
  const auto first = lease.send_sign(after(1000));
  REQUIRE(first);
  CHECK(first->sent == after(1000).count());
  CHECK_FALSE(first->ready);
  CHECK_FALSE(lease.send_sign(after(1500)));
  const auto second = lease.send_sign(after(2100));
  REQUIRE(second);
  lease.answered(first->sent);  // it arrives late, which does not change the end
  CHECK(lease.end() == after(31'000));
  lease.answered(second->sent);
  CHECK(lease.end() == after(32'100));
  lease.answered(first->sent);
  CHECK(lease.end() == after(32'100));
  CHECK_FALSE(lease.over(after(32'099)));
  CHECK(lease.over(after(32'100)));
}

TEST_CASE("only the agent's own words can be answered") {
  Lease lease(seconds(30), kStart);
  REQUIRE(lease.send_sign(after(1000)));
  lease.answered(after(5000).count());
  lease.answered(0);
  CHECK(lease.end() == after(30'000));
}

TEST_CASE("the time for which the agent was stopped counts") {
  Lease lease(seconds(30), kStart);
  const auto sent = lease.send_sign(after(1000));
  REQUIRE(sent);
  lease.answered(sent->sent);  // as if the agent read it after it was continued
  CHECK(lease.over(after(3'600'000)));
}

TEST_CASE("an agent without a lease neither speaks nor ends") {
  Lease none;
  CHECK_FALSE(none.on());
  CHECK_FALSE(none.send_sign(after(9'000'000)));
  CHECK_FALSE(none.over(after(9'000'000)));
  CHECK_FALSE(none.deadline());
  none.hold(kStart);
  none.resume(kStart);
  CHECK_FALSE(none.send_sign(after(9'000'000)));
}

TEST_CASE("while the head says that it is stopped, nothing ends") {
  Lease lease(seconds(30), kStart);
  const auto before = lease.send_sign(after(1000));
  REQUIRE(before);
  lease.hold(after(1500));
  CHECK_FALSE(lease.end());
  CHECK_FALSE(lease.deadline());
  CHECK_FALSE(lease.send_sign(after(500'000)));
  CHECK_FALSE(lease.over(after(500'000)));
  lease.resume(after(600'000));
  CHECK(lease.end() == after(630'000));
  const auto ready = lease.send_sign(after(600'000));
  REQUIRE(ready);
  CHECK(ready->ready);
  lease.answered(before->sent);  // from before the stop: the head may have given this host up since then
  CHECK(lease.end() == after(630'000));
  lease.answered(ready->sent);
  CHECK(lease.end() == after(630'000));
  const auto next = lease.send_sign(after(601'000));
  REQUIRE(next);
  CHECK_FALSE(next->ready);
}

TEST_CASE("a lease that is over is not held any more") {
  Lease lease(seconds(30), kStart);
  lease.hold(after(30'000));
  CHECK(lease.over(after(30'001)));
}

TEST_CASE("a head that goes on without having been stopped is answered too") {
  Lease lease(seconds(30), kStart);
  REQUIRE(lease.send_sign(after(1000)));
  lease.resume(after(1100));
  CHECK(lease.end() == after(30'000));
  const auto ready = lease.send_sign(after(1100));
  REQUIRE(ready);
  CHECK(ready->ready);
}

TEST_CASE("a guard sees the end of the lease of the agent below it") {
  LeaseEnd end = LeaseEnd::shared();
  CHECK_FALSE(end.get());
  const pid_t agent = ::fork();
  REQUIRE(agent >= 0);
  if (agent == 0) {
    end.set(after(7));
    ::_exit(0);
  }
  REQUIRE(::waitpid(agent, nullptr, 0) == agent);
  CHECK(end.get() == after(7));
  end.set(std::nullopt);
  CHECK_FALSE(end.get());
  LeaseEnd none;
  none.set(after(7));
  CHECK_FALSE(none.get());
}

// One host and the head. A message between them takes up to a second, or is lost if its direction fails. The agent acts
// at the end of its lease. If the agent is stopped then, the guard acts.
struct FencedHost {
  explicit FencedHost(unsigned seed) : random(seed) {}

  int delay() {
    return std::uniform_int_distribution<int>(0, std::uniform_int_distribution<int>(0, 3)(random) ? 20 : 900)(random);
  }
  [[nodiscard]] static TimePoint head_time(int ms) { return TimePoint(seconds(1000) + milliseconds(ms)); }

  // Runs until the head has given the host up, or `most` ms have passed.
  void run(int most, int up_fails, int down_fails, int stopped_from, int stopped_to) {
    Lease lease(kLimit, after(0));
    HostSilence silence(kLimit);
    SignOfLife sign;
    sign.expect(head_time(delay()));
    std::vector<SignOfLife*> signs = {&sign};
    std::multimap<int, std::int64_t> to_head;
    std::multimap<int, std::int64_t> to_agent;
    for (int ms = 0; ms < most && !given_up; ++ms) {
      const bool stopped = ms >= stopped_from && ms < stopped_to;
      if (!stopped && !ended) {
        for (; !to_agent.empty() && to_agent.begin()->first <= ms; to_agent.erase(to_agent.begin())) {
          lease.answered(to_agent.begin()->second);
        }
        if (lease.over(after(ms))) ended = ms;
        if (const auto heartbeat = ended ? std::nullopt : lease.send_sign(after(ms)); heartbeat && ms < up_fails) {
          to_head.emplace(ms + delay(), heartbeat->sent);
        }
      }
      // The guard needs a little more time.
      if (stopped && !ended && lease.end() && after(ms) >= *lease.end() + milliseconds(200)) ended = ms;
      for (; !to_head.empty() && to_head.begin()->first <= ms; to_head.erase(to_head.begin())) {
        sign.received_at = head_time(ms);
        if (ms < down_fails) to_agent.emplace(ms + delay(), to_head.begin()->second);
      }
      if (ms % 50 == 0 && !silence.look(head_time(ms), signs).lost.empty()) given_up = ms;
    }
  }

  static constexpr milliseconds kLimit = seconds(5);
  std::mt19937 random;
  std::optional<int> ended;     // when the ranks ended
  std::optional<int> given_up;  // when the head gave the host up
};

TEST_CASE("ranks have ended when the head gives their host up, whatever fails") {
  constexpr int kNever = 1 << 30;
  int losses = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const int when = std::uniform_int_distribution<int>(0, 4000)(random);
    FencedHost host(seed);
    switch (seed % 4) {
      case 0:  // the cable fails
        host.run(20'000, when, when, kNever, kNever);
        break;
      case 1:  // the host receives nothing
        host.run(20'000, kNever, when, kNever, kNever);
        break;
      case 2:  // the host sends nothing
        host.run(20'000, when, kNever, kNever, kNever);
        break;
      default:  // the host's agent is stopped, and may be continued
        host.run(20'000, kNever, kNever, when, when + std::uniform_int_distribution<int>(100, 9000)(random));
    }
    CAPTURE(seed, host.ended.value_or(-1), host.given_up.value_or(-1));
    // The head hears such a host until that has ended its ranks. Then the host is silent.
    if (!host.given_up) continue;
    ++losses;
    REQUIRE(host.ended);
    CHECK(*host.ended + 200 <= *host.given_up);  // 200 ms are left for killing
  }
  CHECK(losses > 300);
}

}  // namespace
}  // namespace distrun::launcher
