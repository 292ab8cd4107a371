// What Gloo does when whoever comes to its port is no member of the job, and to the program around it.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "test/backend/group_fixtures.h"
#include "test/backend/ranks.h"

namespace distrun::test {
namespace {

constexpr double kPatience = 2;  // a silent stranger is found out by the time that is left
constexpr double kStarted = 60;  // for member 0 to listen, however busy the machine

// Connects to the port on which member 0 waits for member 1, as the store has it: a sockaddr at the front.
Fd connect_to_member_0(FakeStore& store) {
  const auto value = store.get("gloo/0/cpu:0", deadline_after(kStarted));
  REQUIRE(value.ok());
  REQUIRE(value->size() >= sizeof(sockaddr_in));
  sockaddr_in address{};
  std::memcpy(&address, value->data(), sizeof(address));
  REQUIRE(address.sin_family == AF_INET);
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

const std::string kTensor = {0, 0, '\x80', 0x3f, 0, 0, '\x80', 0x3f};  // two ones

// Everything that has been sent to a connection of whose other end nothing more is to come.
std::string all_of(const Fd& fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0;) {
    all.append(buffer, static_cast<std::size_t>(got));
  }
  return all;
}

// "" for a member that has a group in which a sum is right.
std::string join(ThreadGroup& group, int index) {
  auto made = group.create(index, deadline_after(kPatience));
  if (!made.ok()) return made.status().message();
  Rank rank(index, 2, **made, group.wait_set(index));
  std::vector<float> data(100, 1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  const backend::Segment segment = {.in = bytes, .out = bytes, .count = data.size()};
  rank.run({.segments = {&segment, 1}}, "allreduce");
  for (const std::string& failure : rank.outcome().failures) return failure;
  return data.back() == 2 ? "" : "a wrong sum";
}

}  // namespace

TEST_CASE("gloo faults: a stranger on the port gets no tensor, and nobody waits for it") {
  for (const std::string& says : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(48, '\0')}) {
    const auto fixture = subject().make(2);
    auto& group = dynamic_cast<ThreadGroup&>(*fixture);
    std::vector<std::string> outcomes(2);
    std::thread first([&] { outcomes[0] = join(group, 0); });
    const Fd stranger = connect_to_member_0(group.store());
    if (!says.empty()) REQUIRE(::send(stranger.get(), says.data(), says.size(), MSG_NOSIGNAL) > 0);
    std::thread second([&] { outcomes[1] = join(group, 1); });
    first.join();
    second.join();
    CAPTURE(says, outcomes[0], outcomes[1]);
    // Who of the two listens is decided by their addresses: the stranger came for nothing, or to both members' loss.
    CHECK(outcomes[0].empty() == outcomes[1].empty());
    for (const std::string& outcome : outcomes) CHECK(outcome.find("sum") == std::string::npos);
    CHECK(all_of(stranger).find(kTensor) == std::string::npos);
  }
}

TEST_CASE("gloo: whoever starts a tiny all-reduce does not wait for a member that is late") {
  const auto fixture = subject().make(3);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  std::vector<std::string> outcomes(3);
  std::atomic<int> started{0};
  const auto run = [&](int index) {
    auto made = group.create(index, deadline_after(kStarted));
    if (!made.ok()) return made.status().message();
    Rank rank(index, 3, **made, group.wait_set(index));
    for (int number = 0; number < 200; ++number) {
      std::vector<std::int64_t> data(3, index + number);
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      const backend::Segment segment = {.in = bytes, .out = bytes, .count = data.size()};
      const bool late = index == 2 && number % 100 == 50;
      while (late && started < 2 * (number / 100 + 1)) std::this_thread::yield();
      rank.start({.dtype = DType::kI64, .segments = {&segment, 1}});
      if (index != 2 && number % 100 == 50) ++started;
      rank.finish();
      if (data != std::vector<std::int64_t>(3, 3 * number + 3))
        return "a wrong sum in number " + std::to_string(number);
    }
    return std::string();
  };
  std::vector<std::thread> threads;
  for (int index = 0; index < 3; ++index) {
    threads.emplace_back([&, index] { outcomes[static_cast<std::size_t>(index)] = run(index); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(outcomes == std::vector<std::string>(3));
}

TEST_CASE("gloo: the program keeps its locks on files") {
  char path[] = "/tmp/distrun-test-XXXXXX";
  const Fd file(::mkstemp(path));
  REQUIRE(file.valid());
  // Sees the lock without being a process of its own, and is not closed before: that would end the lock too.
  const Fd onlooker(::open(path, O_RDWR | O_CLOEXEC));
  REQUIRE(onlooker.valid());
  ::unlink(path);
  const auto lock_type = [&] {
    struct flock found {
      .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0
    };
    return ::fcntl(onlooker.get(), F_OFD_GETLK, &found) == 0 ? int{found.l_type} : -1;
  };
  struct flock whole {
    .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0
  };
  REQUIRE(::fcntl(file.get(), F_SETLK, &whole) == 0);
  REQUIRE(lock_type() == F_WRLCK);

  const auto fixture = subject().make(2);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  std::vector<std::string> outcomes(2);
  std::thread first([&] { outcomes[0] = join(group, 0); });
  outcomes[1] = join(group, 1);
  first.join();
  CHECK(outcomes == std::vector<std::string>(2));
  CHECK(lock_type() == F_WRLCK);
}

}  // namespace distrun::test
