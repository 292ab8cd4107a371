#include "launcher/job/agents/host_silence.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace distrun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Places = std::vector<std::size_t>;

TimePoint at_ms(int ms) { return TimePoint(seconds(1000) + milliseconds(ms)); }

// Hosts that speak every second, each at a different time within the second.
struct Speakers {
  explicit Speakers(std::size_t count, Duration limit = seconds(30))
      : silence(limit), signs(count), from(count, 1 << 30), to(count, 0) {
    for (SignOfLife& sign : signs) {
      sign.expect(at_ms(0));
      all.push_back(&sign);
    }
  }
  struct Line {
    int when = 0;
    HostSilence::Changes changes;
  };
  // The lines that the head prints up to `end`.
  std::vector<Line> until(int end) {
    std::vector<Line> out;
    for (; now < end; now += 50) {
      for (std::size_t i = 0; i < signs.size(); ++i) {
        const bool silent_for = now >= from[i] && now < to[i];
        if (!silent_for && now % 1000 == static_cast<int>(i) * 100) signs[i].received_at = at_ms(now);
      }
      HostSilence::Changes changes = silence.look(at_ms(now), all);
      if (changes.silent.empty() && changes.back.empty() && changes.lost.empty()) continue;
      for (const std::size_t host : changes.lost) signs[host].expected = false;
      out.push_back({now, std::move(changes)});
    }
    return out;
  }
  void silent_for(std::size_t host, int begin, int end = 1 << 30) {
    from[host] = begin;
    to[host] = end;
  }
  HostSilence silence;
  std::vector<SignOfLife> signs;
  std::vector<SignOfLife*> all;
  std::vector<int> from, to;
  int now = 0;
};

TEST_CASE("hosts that speak are no news, and nobody is looked for where none is expected") {
  Speakers hosts(3);
  CHECK(hosts.until(100'000).empty());
  REQUIRE(hosts.silence.deadline(hosts.all));
  CHECK(*hosts.silence.deadline(hosts.all) <= at_ms(hosts.now + 1000));
  for (SignOfLife& sign : hosts.signs) sign.expected = false;
  CHECK_FALSE(hosts.silence.deadline(hosts.all));
}

TEST_CASE("six seconds of silence are two lines, and the host stays") {
  Speakers hosts(3);
  hosts.silent_for(1, 10'000, 16'000);  // the last sign of life is at 9,100 ms, and the next one at 16,100 ms
  const auto lines = hosts.until(100'000);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].when == 12'600);
  CHECK(lines[0].changes.silent == Places{1});
  CHECK(lines[1].when == 16'100);
  CHECK(lines[1].changes.back == Places{1});
  CHECK(lines[1].changes.silent_for == seconds(7));
  CHECK(lines[1].changes.lost.empty());
}

TEST_CASE("a host is given up after the whole limit, and half a second in which others are looked at") {
  Speakers hosts(3);
  hosts.silent_for(1, 10'000);
  const auto lines = hosts.until(100'000);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].changes.silent == Places{1});
  CHECK(lines[1].when == 39'600);
  CHECK(lines[1].changes.lost == Places{1});
}

TEST_CASE("hosts that go together are named together, whenever each has spoken last") {
  Speakers hosts(10);
  for (std::size_t host = 5; host < 10; ++host) hosts.silent_for(host, 10'000 + static_cast<int>(host) * 40);
  const auto lines = hosts.until(100'000);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].changes.silent == Places{5, 6, 7, 8, 9});
  CHECK(lines[1].changes.lost == Places{5, 6, 7, 8, 9});
}

TEST_CASE("a host that went silent earlier is given up first, and with it whoever is silent too") {
  Speakers hosts(4);
  hosts.silent_for(0, 10'000);
  hosts.silent_for(1, 20'000);
  hosts.silent_for(2, 38'000);  // it is not silent for long enough yet
  const auto lines = hosts.until(40'000);
  REQUIRE(lines.size() >= 3);
  CHECK(lines.back().changes.lost == Places{0, 1});
}

TEST_CASE("one that speaks in the last moment is not given up") {
  Speakers hosts(2);
  hosts.silent_for(0, 10'000,
                   39'200);  // its last sign of life is at 9,000: the limit has passed, but not by half a second
  hosts.signs[0].received_at = at_ms(0);
  for (const auto& line : hosts.until(39'200)) CHECK(line.changes.lost.empty());
  hosts.signs[0].received_at = at_ms(39'200);
  for (const auto& line : hosts.until(60'000)) CHECK(line.changes.lost.empty());
}

TEST_CASE("hosts that come back within a second are named together") {
  Speakers hosts(4);
  hosts.silent_for(1, 10'000, 17'000);
  hosts.silent_for(2, 10'000, 17'000);
  hosts.silent_for(3, 10'000, 50'000);
  const auto lines = hosts.until(30'000);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].changes.silent == Places{1, 2, 3});
  CHECK(lines[1].changes.back == Places{1, 2});
}

TEST_CASE("a head that was stopped itself counts for nobody what it could not hear") {
  Speakers hosts(2);
  CHECK(hosts.until(10'000).empty());
  hosts.now += 3'600'000;
  CHECK(hosts.until(3'612'500).empty());
  hosts.silent_for(1, hosts.now);
  const auto lines = hosts.until(hosts.now + 60'000);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1].changes.lost == Places{1});
}

TEST_CASE("the end of a silent host's connection is the end of its silence") {
  Speakers hosts(3);
  hosts.silent_for(0, 10'000);
  hosts.silent_for(1, 10'000);
  CHECK_FALSE(HostSilence::explains(hosts.signs[0]));
  hosts.until(20'000);
  CHECK(HostSilence::explains(hosts.signs[0]));
  CHECK_FALSE(HostSilence::explains(hosts.signs[2]));
  CHECK(HostSilence::as_silent(at_ms(hosts.now), hosts.all) == Places{0, 1});
  hosts.signs[0].received_at = at_ms(hosts.now);
  CHECK_FALSE(HostSilence::explains(hosts.signs[0]));
}

}  // namespace
}  // namespace distrun::launcher
