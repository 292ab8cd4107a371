// Runs in a separate network namespace whose only interface goes down, so that packets are lost without an error.
// Making the namespace needs root (CAP_SYS_ADMIN). The two ends are 127.0.0.1 and 127.0.0.2.
#include "runtime/net/bytes/link_watches.h"

#include <net/if.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/net/bytes/socket.h"
#include "runtime/net/bytes/wait_set.h"

namespace distrun::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLimit = seconds(1);

void set_loopback(bool up) {
  const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  CHECK(::ioctl(fd.get(), SIOCGIFFLAGS, &request) == 0);
  const int flags = up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
  request.ifr_flags = static_cast<short>(flags);
  CHECK(::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0);
}

// Runs `test` on a new thread, because a namespace belongs to the thread that made it.
void in_own_network(const std::function<void()>& test, bool with_loopback = true) {
  bool made = false;
  std::thread([&] {
    made = ::unshare(CLONE_NEWNET) == 0;
    if (!made) return;
    if (with_loopback) set_loopback(true);
    test();
  }).join();
  if (!made) SKIP("a network namespace cannot be made here (needs root)");
}

struct Connection {
  Connection() {
    Address address{.host = "127.0.0.2"};
    const Fd listener = *listen_stream(address);
    here = *connect_stream(address, deadline_after(10));
    CHECK(wait_ready(listener.get(), 1 /* POLLIN */, deadline_after(10)).ok());
    there = *accept_stream(listener.get());
    for (const int fd : {here.get(), there.get()}) allow_slow_reader(fd);
  }
  Fd here, there;
};

struct Ended {
  LinkEnd end = LinkEnd::kUnknown;
  std::string how;
  int times = 0;
};

LinkWatch watch(Ended& ended, std::function<std::uint64_t()> begun = nullptr) {
  return {.limit = kLimit, .begun = std::move(begun), .ended = [&ended](LinkEnd end, const std::string& how) {
            ended = {.end = end, .how = how, .times = ended.times + 1};
          }};
}

void fill(int fd) {
  const std::vector<char> bytes(1 << 16);
  while (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) continue;
}

// Waits as an engine does that waits for something else.
void wait(WaitSet& wait_set, TimePoint until, const Ended& ended) {
  while (ended.times == 0 && Clock::now() < until) CHECK(wait_set.poll(until).ok());
}

TEST_CASE("if the loopback interface is down, the error names it and the cure") {
  const auto connects = [] {
    const Status status = connect_stream({.host = "127.0.0.1", .port = 9}, deadline_after(10)).status();
    CHECK(status.code() == Errc::kSystem);
    CHECK(status.message().find("the loopback interface (lo) is down; `ip link set lo up`") != std::string::npos);
  };
  in_own_network(connects, false);
}

TEST_CASE("a network that is gone ends a connection with bytes on their way, and no other") {
  in_own_network([] {
    const Connection busy;
    const Connection idle;
    const auto wait_set = *WaitSet::create();
    Ended of_busy, of_idle;
    wait_set->add_link(busy.here.get(), watch(of_busy));
    wait_set->add_link(idle.here.get(), watch(of_idle));
    CHECK(::send(busy.here.get(), "hello", 5, MSG_NOSIGNAL) == 5);
    wait(*wait_set, deadline_after(1.5), of_busy);
    CHECK(of_busy.times == 0);  // the peer has acknowledged the bytes
    set_loopback(false);
    CHECK(::send(busy.here.get(), "hello", 5, MSG_NOSIGNAL) == 5);
    const TimePoint begun = Clock::now();
    wait(*wait_set, deadline_after(30), of_busy);
    CHECK(of_busy.end == LinkEnd::kSilent);
    CHECK(of_busy.how.find("127.0.0.2") != std::string::npos);
    CHECK(Clock::now() - begun >= kLimit);
    CHECK(of_idle.times == 0);
  });
}

TEST_CASE("an idle connection ends after the limit, counted from the last thing that was heard") {
  in_own_network([] {
    const Connection idle;
    set_host_timeout(idle.here.get(), 2);
    CHECK(::send(idle.there.get(), "hello", 5, MSG_NOSIGNAL) == 5);
    char byte = 0;
    CHECK(wait_ready(idle.here.get(), 1 /* POLLIN */, deadline_after(10)).ok());
    while (::recv(idle.here.get(), &byte, 1, MSG_DONTWAIT) == 1) continue;
    const TimePoint heard = Clock::now();
    set_loopback(false);
    CHECK(wait_ready(idle.here.get(), 1 /* POLLIN */, deadline_after(30)).ok());
    const Duration waited = Clock::now() - heard;
    CHECK(pending_error(idle.here.get()) == ETIMEDOUT);
    CHECK(waited > milliseconds(1500));
    CHECK(waited < milliseconds(4000));  // it was 5 s; the rest is for an overloaded machine
  });
}

TEST_CASE("a reader that does not read for longer than the limit is no broken network") {
  in_own_network([] {
    const Connection slow;
    const auto wait_set = *WaitSet::create();
    Ended ended;
    wait_set->add_link(slow.here.get(), watch(ended));
    fill(slow.here.get());
    wait(*wait_set, deadline_after(4), ended);
    CHECK(ended.times == 0);
    const auto facts = ack_facts(slow.here.get());
    CHECK((facts && facts->queued > 0));
    // Now its network fails.
    set_loopback(false);
    wait(*wait_set, deadline_after(40), ended);
    CHECK(ended.end == LinkEnd::kSilent);
  });
}

TEST_CASE("a record that has begun must be made whole") {
  in_own_network([] {
    const Connection connection;
    const auto wait_set = *WaitSet::create();
    Ended ended;
    std::uint64_t record = 1;
    wait_set->add_link(connection.here.get(), watch(ended, [&record] { return record; }));
    wait(*wait_set, deadline_after(0.5), ended);
    record = 2;  // this record is complete, and the next one has begun
    CHECK(ended.times == 0);
    wait(*wait_set, deadline_after(20), ended);
    CHECK(ended.end == LinkEnd::kUnfinished);
    CHECK(ended.how.find("not complete after 1 s") != std::string::npos);
  });
}

TEST_CASE("a wait set wakes nobody for connections on which nothing is under way") {
  LinkWatches watches;
  Ended ended;
  CHECK(watches.due() == TimePoint::max());
  watches.used();
  CHECK(watches.due() == TimePoint::max());  // there is no connection to watch
  watches.add(-1, watch(ended));
  watches.used();
  CHECK(watches.due() < TimePoint::max());
  const TimePoint now = Clock::now();
  CHECK(watches.look(now) == 0);
  CHECK(watches.due() == TimePoint::max());
  watches.used();
  CHECK(watches.due() == now + LinkWatches::kInterval);
}

TEST_CASE("a record counts for as long as this process looks") {
  const TimePoint start = TimePoint{} + std::chrono::hours(1);
  const Duration limit = seconds(2);
  BegunRecord record;
  CHECK_FALSE(record.overdue(0, start, limit));
  CHECK_FALSE(record.waits());
  CHECK_FALSE(record.overdue(7, start + seconds(1), limit));
  CHECK(record.waits());
  CHECK_FALSE(record.overdue(7, start + seconds(2), limit));
  CHECK_FALSE(record.overdue(8, start + seconds(3), limit));
  CHECK_FALSE(record.overdue(8, start + seconds(60), limit));  // the process was stopped
  CHECK_FALSE(record.overdue(8, start + seconds(61), limit));
  CHECK(record.overdue(8, start + seconds(62), limit));
}

}  // namespace
}  // namespace distrun::net
