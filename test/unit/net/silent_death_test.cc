// A host that vanishes sends no end of file. The test runs in a separate network namespace whose only interface goes
// down, so that packets are lost without an error. Making the namespace needs root (CAP_SYS_ADMIN).
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/net/secure/secure_socket.h"

namespace distrun::net {
namespace {

TimePoint soon() { return deadline_after(50); }

bool set_loopback(bool up) {
  const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (!fd.valid() || ::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return false;
  const int flags = up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
  request.ifr_flags = static_cast<short>(flags);
  return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

struct Outcome {
  std::string skipped;
  std::string broken;  // a step of the preparation that failed
  Status idle;         // how a connection without data under way ended
  Status busy;         // how a connection with data under way ended
};

// Runs on its own thread: a namespace belongs to the thread that made it and to the threads that this one starts.
Outcome lose_the_network() {
  Outcome outcome;
  if (::unshare(CLONE_NEWNET) != 0) {
    outcome.skipped = "a network namespace cannot be made here (needs root)";
    return outcome;
  }
  const JobKey key = JobKey::generate();
  auto listener = set_loopback(true)
                      ? listen_secure("127.0.0.1:0", key, {.purpose = "control", .job_id = "job", .from = 0})
                      : Result<std::unique_ptr<SecureListener>>(Status(Errc::kSystem, "no loopback"));
  if (!listener.ok()) {
    outcome.broken = listener.status().message();
    return outcome;
  }
  std::vector<std::unique_ptr<SecureSocket>> ours;
  std::vector<std::unique_ptr<SecureSocket>> theirs;
  for (const int rank : {1, 2}) {
    auto client = std::async(std::launch::async, [&] {
      return connect_secure((*listener)->address(), key, {.purpose = "control", .job_id = "job", .from = rank, .to = 0},
                            soon());
    });
    auto server = (*listener)->accept_blocking({}, soon());
    auto connected = client.get();
    if (!server.ok() || !connected.ok()) {
      outcome.broken = "no connection";
      return outcome;
    }
    ours.push_back(*std::move(server));
    theirs.push_back(*std::move(connected));
  }
  if (!set_loopback(false) || !ours[1]->send_frame({}).ok() || !ours[1]->flush().ok()) {
    outcome.broken = "the interface cannot be taken down";
    return outcome;
  }
  outcome.idle = ours[0]->receive_frame_blocking(soon()).status();
  outcome.busy = ours[1]->receive_frame_blocking(soon()).status();
  return outcome;
}

TEST_CASE("a host that vanishes is noticed, with and without data under way", "[silent_death]") {
  Outcome outcome;
  // Without the socket options, the idle connection would take two hours to end, and the busy one a quarter of an hour.
  std::thread([&outcome] { outcome = lose_the_network(); }).join();
  if (!outcome.skipped.empty()) SKIP(outcome.skipped);
  REQUIRE(outcome.broken.empty());
  INFO((outcome.idle.ok() ? "idle: no error" : outcome.idle.message()));
  INFO((outcome.busy.ok() ? "busy: no error" : outcome.busy.message()));
  CHECK(outcome.idle.code() == Errc::kRankLost);
  CHECK(outcome.busy.code() == Errc::kRankLost);
  CHECK(outcome.idle.info().ranks == std::vector<int>{1});
  CHECK(outcome.busy.info().ranks == std::vector<int>{2});
}

}  // namespace
}  // namespace distrun::net
