// Faults with Gloo: connections to its port from outside the job, and its side effects on the program.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/backend/group_fixtures.h"
#include "test/backend/ranks.h"

namespace distrun::test {
namespace {

constexpr double kStarted = 60;  // seconds for all members to connect, even on a busy machine
constexpr int kTries = 3;

std::string key_of(int attempt, int index) {
  return "gloo/0/cpu:" + std::to_string(attempt) + "/" + std::to_string(index);
}

// The value that a member of a group of two publishes as its address.
std::string encoded(const sockaddr_in& address) {
  std::string addresses(1 + sizeof(sockaddr_storage) + sizeof(std::int64_t), '\0');
  addresses[0] = '+';
  std::memcpy(addresses.data() + 1, &address, sizeof(address));
  return addresses;
}

// Greater than the address of any member. A member that reads it waits for a connection from there.
const sockaddr_in kNobody = {
    .sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(0xfffffffe)}, .sin_zero = {}};

Fd new_socket() { return Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// The members' addresses decide which of two members listens, so strangers connect to both. They connect before a
// member can know the address.
class Strangers {
 public:
  Strangers(FakeStore& store, int members, int attempts, std::string says)
      : members_(members), attempts_(attempts), says_(std::move(says)) {
    store.before_set([this](const std::string& key, const std::string& addresses) { look(key, addresses); });
  }
  // The strangers that have connected to a port and sent their bytes.
  [[nodiscard]] const std::vector<Fd>& all() const { return all_; }

 private:
  void look(const std::string& key, const std::string& addresses) {
    for (int attempt = 1; attempt <= attempts_; ++attempt) {
      for (int index = 0; index < members_; ++index) {
        if (key == key_of(attempt, index)) come(addresses);
      }
    }
  }

  // `addresses` has the addresses at which a member listens, one sockaddr for each other member, after a mark.
  void come(const std::string& addresses) {
    const auto others = static_cast<std::size_t>(members_ - 1);
    const std::size_t length = (addresses.size() - 1) / others;
    for (std::size_t other = 0; other < others; ++other) {
      sockaddr_in address{};
      std::memcpy(&address, addresses.data() + 1 + other * length, std::min(length, sizeof(address)));
      Fd fd = new_socket();
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) continue;
      if (!says_.empty() && ::send(fd.get(), says_.data(), says_.size(), MSG_NOSIGNAL) <= 0) continue;
      const MutexLock lock(mutex_);
      all_.push_back(std::move(fd));
    }
  }

  const int members_;
  const int attempts_;
  const std::string says_;
  Mutex mutex_;
  std::vector<Fd> all_;
};

const std::string kTensor = {0, 0, '\x80', 0x3f, 0, 0, '\x80', 0x3f};  // two ones

// Everything that was sent to a connection. Its peer must have finished sending.
std::string all_of(const Fd& fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0;) {
    all.append(buffer, static_cast<std::size_t>(got));
  }
  return all;
}

// Makes the send buffer of every TCP socket of the process as small as possible.
void take_little_at_a_time() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const int least = 1;
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.ss_family != AF_INET) continue;
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
  }
}

// Returns "" if the member gets a group and its sum is right, otherwise the error.
std::string join(ThreadGroup& group, int members, int index, double time_limit = kStarted, std::size_t count = 100) {
  auto made = group.create(index, deadline_after(time_limit));
  if (!made.ok()) return made.status().message();
  Rank rank(index, members, **made, group.wait_set(index));
  std::vector<float> data(count, 1.0F);
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  const backend::Segment segment = {.in = bytes, .out = bytes, .count = data.size()};
  rank.run({.segments = {&segment, 1}}, "allreduce");
  for (const std::string& failure : rank.outcome().failures) return failure;
  return data.back() == static_cast<float>(members) ? "" : "a wrong sum";
}

std::vector<std::string> join_all(ThreadGroup& group, int members, std::size_t count = 100) {
  std::vector<std::string> outcomes(static_cast<std::size_t>(members));
  std::vector<std::thread> threads;
  for (int index = 0; index < members; ++index) {
    threads.emplace_back(
        [&, index] { outcomes[static_cast<std::size_t>(index)] = join(group, members, index, kStarted, count); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("gloo faults: a stranger on the port gets no tensor, and the members meet at other ports") {
  for (const std::string& says : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(48, '\0')}) {
    for (int attempts = 1; attempts < kTries; ++attempts) {
      const int members = attempts == 1 ? 2 : 4;
      const auto fixture = subject().make(members);
      auto& group = dynamic_cast<ThreadGroup&>(*fixture);
      const Strangers strangers(group.store(), members, attempts, says);
      CAPTURE(says, members, attempts);
      CHECK(join_all(group, members) == std::vector<std::string>(static_cast<std::size_t>(members)));
      CHECK(strangers.all().size() == static_cast<std::size_t>(members * (members - 1) * attempts));
      for (const Fd& stranger : strangers.all()) CHECK_FALSE(contains(all_of(stranger), kTensor));
    }
  }
}

TEST_CASE("gloo faults: where a stranger always comes first, all members say so, without waiting for their time") {
  const int members = 3;
  const auto fixture = subject().make(members);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  const Strangers strangers(group.store(), members, kTries, "");
  const TimePoint before = Clock::now();
  const auto outcomes = join_all(group, members);
  CHECK(Clock::now() - before < duration_of(kStarted / 2));
  CHECK(strangers.all().size() == std::size_t{members * (members - 1) * kTries});
  CHECK(outcomes == std::vector<std::string>(members, outcomes[0]));
  CAPTURE(outcomes[0]);
  CHECK(contains(outcomes[0], "The last try: the connection of rank "));
  for (const char* part : {" ([127.0.0.1]:", ") with rank ", "--network", "--backend tcp"}) {
    CHECK(contains(outcomes[0], part));
  }
}

TEST_CASE("gloo faults: a connection on which nothing comes costs its part of the time, and is named") {
  const auto fixture = subject().make(2);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  // Member 1 exists only in the store. Its listening sockets are there, but no process reads or sends on them.
  std::vector<Fd> sockets;
  for (int attempt = 1; attempt <= kTries; ++attempt) {
    Fd& listener = sockets.emplace_back(new_socket());
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof(address);
    REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    REQUIRE(group.store().set(key_of(attempt, 1), encoded(address)).ok());
  }
  const std::string outcome = join(group, 2, 0, 3);
  CAPTURE(outcome);
  CHECK(contains(outcome, "in 3 tries, each with other ports"));
  CHECK(contains(outcome, "with rank 1 ([127.0.0.1]:"));
  CHECK(contains(outcome, "nothing came over it in"));
}

TEST_CASE("gloo faults: who waits for a member's proof hears that it has died") {
  const auto fixture = subject().make(2);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  // The test plays member 1: it connects and sends nothing.
  REQUIRE(group.store().set(key_of(1, 1), encoded(kNobody)).ok());
  Status end;
  std::thread member([&] { end = group.create(0, deadline_after(600)).status(); });
  const auto addresses = group.store().get(key_of(1, 0), deadline_after(kStarted));
  sockaddr_in address{};
  if (addresses.ok()) std::memcpy(&address, addresses->data() + 1, sizeof(address));
  const Fd fd = new_socket();
  const bool connected = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  pollfd heard{.fd = fd.get(), .events = POLLIN, .revents = 0};
  const bool proves = connected && ::poll(&heard, 1, static_cast<int>(1000 * kStarted)) == 1;
  const TimePoint before = Clock::now();
  group.store().fail({Errc::kRankLost, "rank 1 was lost"});
  member.join();
  CHECK(proves);
  CHECK(Clock::now() - before < duration_of(kStarted));
  CHECK(end.code() == Errc::kRankLost);
}

TEST_CASE("gloo faults: a member that cannot listen tells the others why") {
  const auto fixture = subject().make(2);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  REQUIRE(group.store().set(key_of(1, 1), "-no more files").ok());
  CHECK(join(group, 2, 0) == "gloo did not connect the ranks: rank 1: no more files");
}

TEST_CASE("gloo faults: a member whose addresses are of another form is named") {
  const auto fixture = subject().make(2);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  REQUIRE(group.store().set(key_of(1, 1), "+short").ok());
  CHECK(contains(join(group, 2, 0), "rank 1 has another version of libgloo."));
}

TEST_CASE("gloo faults: a lack of memory for the verdict is an error and no more") {
  const auto fixture = subject().make(2);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  REQUIRE(group.store().set(key_of(1, 1), encoded(kNobody)).ok());
  group.store().before_set([](const std::string& key, const std::string&) {
    if (key.ends_with("/verdict")) throw std::bad_alloc();
  });
  CHECK(join(group, 2, 0, 1) == "gloo: out of memory");
}

TEST_CASE("gloo: whoever starts an all-reduce that is tried at once does not wait for a member that is late") {
  constexpr int kRounds = 200;
  constexpr int kLate = 50;  // of each hundred operations
  // Tiny all-reduces, and those that members exchange directly: uneven blocks, and the largest size.
  const auto count = GENERATE(std::size_t{3}, std::size_t{5000}, std::size_t{262144});
  const auto fixture = subject().make(3);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  std::vector<std::string> outcomes(3);
  std::atomic<int> started{0};
  const auto run = [&](int index) {
    auto made = group.create(index, deadline_after(kStarted));
    if (!made.ok()) return made.status().message();
    Rank rank(index, 3, **made, group.wait_set(index));
    for (int number = 0; number < kRounds; ++number) {
      std::vector<std::int64_t> data(count, index + number);
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      const backend::Segment segment = {.in = bytes, .out = bytes, .count = data.size()};
      const bool late = index == 2 && number % 100 == kLate;
      while (late && started < 2 * (number / 100 + 1)) std::this_thread::yield();
      rank.start({.dtype = DType::kI64, .segments = {&segment, 1}});
      if (index != 2 && number % 100 == kLate) ++started;
      rank.finish();
      if (data != std::vector<std::int64_t>(count, 3 * number + 3)) {
        return "a wrong sum in number " + std::to_string(number);
      }
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

TEST_CASE("gloo: what an earlier group has left in memory is no message of this one") {
  const auto fixture = subject().make(2);
  auto& group = dynamic_cast<ThreadGroup&>(*fixture);
  for (int round = 0; round < 100; ++round) {
    std::atomic<bool> begun{false};
    std::array<std::string, 2> outcomes;
    const auto run = [&](int index) {
      auto made = group.create(index, deadline_after(kStarted));
      if (!made.ok()) return made.status().message();
      Rank rank(index, 2, **made, group.wait_set(index));
      std::vector<float> data(300, 1.0F);
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      const backend::Segment segment = {.in = bytes, .out = bytes, .count = data.size()};
      const TimePoint time_limit = deadline_after(kStarted / 2);
      while (index == 1 && !begun && Clock::now() < time_limit) std::this_thread::yield();
      const bool waited = index == 1 && !begun;
      rank.start({.segments = {&segment, 1}});
      if (index == 0) begun = true;
      rank.finish();
      if (waited) return std::string("the first member has waited for this one");
      return data.back() == 2.0F ? std::string() : std::string("a wrong sum");
    };
    std::thread other([&] { outcomes[1] = run(1); });
    outcomes[0] = run(0);
    other.join();
    REQUIRE(outcomes == std::array<std::string, 2>());
  }
}

TEST_CASE("gloo: all that a member has sent arrives, though it closes the group at once") {
  constexpr int kMembers = 3;
  for (int round = 0; round < 40; ++round) {
    const auto fixture = subject().make(kMembers);
    auto& group = dynamic_cast<ThreadGroup&>(*fixture);
    // At the verdict all members are connected. From then on, the buffers of the system are too small for any tensor.
    group.store().before_set([](const std::string& key, const std::string&) {
      if (key.ends_with("/verdict")) take_little_at_a_time();
    });
    const std::size_t count = round % 2 == 0 ? 524288 : 1000;
    REQUIRE(join_all(group, kMembers, count) == std::vector<std::string>(kMembers));
  }
}

TEST_CASE("gloo: the program keeps its locks on files") {
  char path[] = "/tmp/distrun-test-XXXXXX";
  const Fd file(::mkstemp(path));
  REQUIRE(file.valid());
  // This descriptor sees the lock although it is in the same process. It stays open, because closing it would release
  // the lock.
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
  CHECK(join_all(group, 2) == std::vector<std::string>(2));
  CHECK(lock_type() == F_WRLCK);
}

}  // namespace distrun::test
