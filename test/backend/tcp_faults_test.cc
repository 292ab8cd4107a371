// The ring when a peer dies, aborts or leaves, or when the other end is not a peer.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/backend/tcp/message.h"
#include "runtime/backend/tcp/ring.h"
#include "runtime/backend/tcp/tcp_backend.h"
#include "test/backend/group_fixtures.h"
#include "test/backend/ranks.h"
#include "test/backend/tcp_making.h"

namespace distrun::test {
namespace {

using backend::Completed;
using backend::Operation;
using backend::Segment;

// An in-place all-reduce that owns its memory.
struct Flight {
  explicit Flight(std::size_t count) : data(count, 1.0F) { segment = {.in = bytes(), .out = bytes(), .count = count}; }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data.data()); }
  [[nodiscard]] Operation operation() const { return {.segments = {&segment, 1}}; }

  std::vector<float> data;
  Segment segment;
};

// Drives the backend until `done`. Returns false if `done` did not become true in time.
template <class Done>
bool drive(backend::Backend& backend, net::WaitSet& wait_set, std::vector<Completed>& completed, Done done) {
  const TimePoint deadline = deadline_after(kTcpTimeLimit);
  while (Clock::now() < deadline) {
    const bool moved = backend.progress();
    backend.completed(completed);
    if (done()) return true;
    if (!moved && !wait_set.poll(deadline).ok()) continue;
  }
  return false;
}

sockaddr_in address_of(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const std::size_t colon = text.find(':');
  REQUIRE(::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) == 1);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(text.substr(colon + 1))));
  return address;
}

Fd stranger(const std::string& text, const std::string& says) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of(text);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::send(fd.get(), says.data(), says.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(says.size()));
  return fd;
}

// Member 1 of a ring. The test plays the other members, at the peer sockets `left` and `right`.
struct Member {
  explicit Member(std::size_t size, const backend::tcp::Tuning& tuning = {}) {
    std::array<std::array<int, 2>, 2> pairs{};
    for (auto& pair : pairs)
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) == 0);
    left.reset(pairs[0][1]);
    right.reset(pairs[1][1]);
    auto made = net::WaitSet::create();
    REQUIRE(made.ok());
    wait_set = *std::move(made);
    auto member = backend::tcp::TcpBackend::create({.ring = {.size = size,
                                                             .index = 1,
                                                             .left_rank = 0,
                                                             .right_rank = size == 2 ? 0 : 2,
                                                             .left = GuardedFd(Fd(pairs[0][0])),
                                                             .right = GuardedFd(Fd(pairs[1][0]))},
                                                    .services = {.wait_set = wait_set.get()},
                                                    .tuning = tuning});
    REQUIRE(member.ok());
    backend = *std::move(member);
  }
  Fd left, right;
  std::unique_ptr<net::WaitSet> wait_set;
  std::unique_ptr<backend::Backend> backend;
};

// Ends rank `victim` with SIGKILL in the middle of a large operation. Every other rank reports its outcome.
void kill_one(int size, int victim) {
  const auto outcomes = run_ranks(RanksAs::kProcesses, size, [&](Rank& rank) {
    Flight small(100);
    rank.run(small.operation(), "before");
    Flight large(std::size_t{4} << 20);
    rank.start(large.operation());
    for (int i = 0; i < 3; ++i) rank.look();
    if (rank.index == victim) ::raise(SIGKILL);
    // Only the engine knows the cause; here the test uses the ring's lost peer instead.
    rank.expect(rank.look_until([&] { return rank.backend().lost_peer().has_value(); }), "nobody was reported lost");
    const bool neighbour = (rank.index + 1) % size == victim || (victim + 1) % size == rank.index;
    if (neighbour)
      rank.expect(rank.backend().lost_peer().value_or(EndedLink{}).peer == victim,
                  "the wrong neighbour was reported lost");
    const Status why(ErrorInfo{.code = Errc::kRankLost, .message = "rank was killed", .ranks = {victim}});
    rank.backend().abort(why);
    for (const auto& [token, status] : rank.finish()) {
      rank.expect(status.code() == Errc::kRankLost && status.message() == "rank was killed", "not the cause");
    }
    Flight later(1);
    rank.expect(!rank.backend().start(later.operation(), 77).ok(), "started after the end");
  });
  for (int r = 0; r < size; ++r) {
    const auto& failures = outcomes[static_cast<std::size_t>(r)].failures;
    CAPTURE(size, victim, r);
    if (r == victim) {
      CHECK(failures == std::vector<std::string>{"the child ended without an outcome"});
    } else {
      CHECK(failures == std::vector<std::string>{});
    }
  }
}

}  // namespace

TEST_CASE("tcp faults: a killed peer is noticed by all and named by its neighbours", "[processes]") {
  for (const int size : {2, 3, 4, 5}) {
    kill_one(size, 0);
    kill_one(size, size - 1);
  }
}

TEST_CASE("tcp faults: strangers at the door do not disturb the ring") {
  constexpr int kSize = 3;
  ThreadGroup group(kSize, make_tcp);
  std::vector<std::thread> ranks;
  std::vector<std::string> failures(kSize);
  std::vector<Fd> strangers;
  // Rank 0 listens and waits. Strangers connect before the other ranks do.
  const auto run = [&](int index) {
    auto made = group.create(index, deadline_after(kTcpTimeLimit));
    if (!made.ok()) {
      failures[static_cast<std::size_t>(index)] = made.status().message();
      return;
    }
    Flight flight(70000);
    std::vector<Completed> completed;
    (void)(*made)->start(flight.operation(), 1);
    const bool ended = drive(**made, *group.wait_set(index), completed, [&] { return !completed.empty(); });
    if (!ended || !completed[0].status.ok() || flight.data.back() != kSize)
      failures[static_cast<std::size_t>(index)] = "the sum did not arrive";
  };
  ranks.emplace_back(run, 0);
  const auto address = group.store().get("tcp/0/0", deadline_after(kTcpTimeLimit));
  REQUIRE(address.ok());
  strangers.push_back(stranger(*address, std::string(100000, '\xff')));
  strangers.push_back(stranger(*address, "GET / HTTP/1.1\r\n\r\n"));
  strangers.push_back(stranger(*address, ""));
  ranks.emplace_back(run, 1);
  ranks.emplace_back(run, 2);
  for (std::thread& rank : ranks) rank.join();
  CHECK(failures == std::vector<std::string>(kSize));
}

TEST_CASE("tcp faults: who closes a group in good order is not lost, who gives up neither") {
  for (const bool aborts : {false, true}) {
    ThreadGroup group(2, make_tcp);
    std::vector<std::unique_ptr<backend::Backend>> ring = create_all(group, 2);
    if (aborts) {
      ring[1]->abort({Errc::kAborted, "enough"});
      ring[1]->progress();
    }
    ring[1].reset();
    // Both connections of rank 0 have an event. When both events are taken, the wait set no longer watches the
    // connections.
    REQUIRE(*group.wait_set(0)->poll(deadline_after(kTcpTimeLimit)) > 0);
    int events = 1;
    while (events > 0) {
      ring[0]->progress();
      events = *group.wait_set(0)->poll(Clock::now());
    }
    CHECK(ring[0]->lost_peer().value_or(EndedLink{}).peer == -1);
  }
}

TEST_CASE("tcp faults: an operation that needs a peer that has left is the peer's loss, not a hang") {
  expect_success(run_ranks(RanksAs::kThreads, 2, [](Rank& rank) {
    Flight flight(3000);
    rank.run(flight.operation(), "allreduce");
    if (rank.index == 1) return;
    rank.start(flight.operation());
    rank.expect(rank.look_until([&] { return rank.backend().lost_peer().value_or(EndedLink{}).peer == 1; }),
                "nobody was reported lost");
    rank.backend().abort({Errc::kRankLeft, "rank 1 left"});
    for (const auto& [token, status] : rank.finish()) rank.expect(status.code() == Errc::kRankLeft, "not the cause");
  }));
}

// A goodbye is sent only if the socket takes it at once. It may therefore be missing.
TEST_CASE("tcp faults: a connection that ends between messages is missed when it is needed, and in one at once") {
  for (const bool in_a_message : {false, true}) {
    Member member(2);
    const backend::tcp::HeaderBytes header = backend::tcp::encode({.bytes = 40});
    if (in_a_message) REQUIRE(::send(member.left.get(), header.data(), header.size() / 2, MSG_NOSIGNAL) > 0);
    member.left.reset();
    member.right.reset();
    const auto look = [&] {
      while (*member.wait_set->poll(Clock::now()) > 0) member.backend->progress();
      member.backend->progress();
      return member.backend->lost_peer().value_or(EndedLink{}).peer;
    };
    CHECK(look() == (in_a_message ? 0 : -1));
    Flight flight(10);
    REQUIRE(member.backend->start(flight.operation(), 1).ok());
    CHECK(look() >= 0);
  }
}

// For instance, a library that closes a descriptor twice may later write into one of distrun's sockets.
TEST_CASE("tcp faults: foreign bytes end the group at once and name their sender, also while nothing runs") {
  const std::string foreign(777, 'x');
  for (const bool from_left : {true, false}) {
    for (const bool idle : {true, false}) {
      CAPTURE(from_left, idle);
      Member member(3);
      Flight flight(10);
      if (!idle) REQUIRE(member.backend->start(flight.operation(), 1).ok());
      const int fd = (from_left ? member.left : member.right).get();
      REQUIRE(::send(fd, foreign.data(), foreign.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(foreign.size()));
      for (int i = 0; i < 3; ++i) {
        REQUIRE(member.wait_set->poll(Clock::now()).ok());
        member.backend->progress();
      }
      const auto lost = member.backend->lost_peer();
      REQUIRE(lost);
      CHECK(lost->peer == (from_left ? 0 : 2));
      CHECK(lost->end == LinkEnd::kMalformed);
      std::vector<Completed> completed;
      member.backend->completed(completed);
      REQUIRE(completed.size() == (idle ? 0 : 1));
      const Status later = idle ? member.backend->start(flight.operation(), 2) : completed[0].status;
      CHECK(later.info().ranks == std::vector{from_left ? 0 : 2});
      CHECK(later.info().link == LinkEnd::kMalformed);
      CHECK_FALSE(later.info().usable);
    }
  }
}

TEST_CASE("tcp faults: members that do not run the same operations get a protocol error, not wrong sums") {
  ThreadGroup group(2, make_tcp);
  const auto ring = create_all(group, 2);
  Flight longer(300000);
  Flight shorter(200000);
  REQUIRE(ring[0]->start(longer.operation(), 1).ok());
  REQUIRE(ring[1]->start(shorter.operation(), 1).ok());
  std::vector<Completed> completed;
  REQUIRE(drive(*ring[0], *group.wait_set(0), completed, [&] {
    ring[1]->progress();
    ring[1]->completed(completed);
    return !completed.empty();
  }));
  CHECK(completed[0].status.code() == Errc::kProtocol);
  CHECK(completed[0].status.message().find("where message 0 of allreduce 0 (float32, ") != std::string::npos);
}

TEST_CASE("tcp faults: an operation for which there is no memory is an error, and nothing runs after it") {
  constexpr std::size_t kTooMuch = std::size_t{1} << 46;  // bytes; no address space holds three times this
  Member member(3, {.gather_bytes = 3 * kTooMuch});
  Flight earlier(10);
  REQUIRE(member.backend->start(earlier.operation(), 1).ok());
  const Segment segment{.in = earlier.bytes(), .out = earlier.bytes(), .count = kTooMuch};
  const Status status = member.backend->start({.dtype = DType::kU8, .segments = {&segment, 1}}, 2);
  CHECK(status.code() == Errc::kOutOfMemory);
  CHECK(status.message().find("211106232532992 bytes") != std::string::npos);
  std::vector<Completed> completed;
  member.backend->completed(completed);
  REQUIRE(completed.size() == 1);
  CHECK(completed[0].token == 1);
  CHECK(completed[0].status.code() == Errc::kOutOfMemory);
  CHECK(member.backend->start(earlier.operation(), 3).code() == Errc::kOutOfMemory);
  // The member sends an abort to its neighbours, so that they do not take its silence for a death.
  for (const Fd* end : {&member.left, &member.right}) {
    backend::tcp::HeaderBytes bytes{};
    REQUIRE(::recv(end->get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    CHECK(backend::tcp::decode(bytes)->kind == backend::tcp::MessageKind::kAbort);
  }
}

// Two pages with the access rights `protection`.
struct Mapping {
  explicit Mapping(int protection)
      : at(static_cast<std::byte*>(::mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(at, kBytes); }
  static constexpr std::size_t kBytes = 8192;
  std::byte* const at;
};

TEST_CASE("tcp faults: memory that cannot be read is the member's own fault and no neighbour's loss") {
  Member member(2);
  const Mapping nothing(PROT_NONE);
  const Segment segment{.in = nothing.at, .out = nothing.at, .count = Mapping::kBytes};
  REQUIRE(
      member.backend->start({.kind = OpKind::kBroadcast, .dtype = DType::kU8, .segments = {&segment, 1}, .root = 1}, 1)
          .ok());
  std::vector<Completed> completed;
  REQUIRE(drive(*member.backend, *member.wait_set, completed, [&] { return !completed.empty(); }));
  CHECK(completed[0].status.code() == Errc::kSystem);
  CHECK(completed[0].status.info().own_memory);
  CHECK(completed[0].status.info().cause == "unusable memory");
  CHECK(completed[0].status.message().find("the memory of a tensor cannot be read") != std::string::npos);
  CHECK(member.backend->lost_peer().value_or(EndedLink{}).peer == -1);
}

TEST_CASE("tcp faults: so is memory that cannot be written, of a broadcast and of an all-to-all") {
  for (const OpKind kind : {OpKind::kBroadcast, OpKind::kAlltoall}) {
    std::atomic<bool> lost_seen{false};
    expect_success(run_ranks(RanksAs::kThreads, 2, [kind, &lost_seen](Rank& rank) {
      const bool at_fault = rank.index == 1;
      const Mapping given(PROT_READ | PROT_WRITE);
      const Mapping taken(at_fault ? PROT_READ : PROT_READ | PROT_WRITE);
      const std::array<std::size_t, 4> counts = {0, Mapping::kBytes, 0, 0};  // only rank 0 sends, and only to rank 1
      const bool sends = kind == OpKind::kBroadcast || !at_fault;
      const Segment segment{.in = given.at, .out = taken.at, .count = sends ? Mapping::kBytes : 0};
      Operation operation{.kind = kind, .dtype = DType::kU8, .segments = {&segment, 1}, .root = 0};
      if (kind == OpKind::kAlltoall) operation.counts = counts;
      const std::uint64_t token = rank.start(operation);
      // The other member may or may not have sent everything by then.
      while (!at_fault && !lost_seen.load()) {
        rank.hear();
        rank.look();
      }
      if (!at_fault) rank.backend().abort({Errc::kAborted, "the other member has failed"});
      const Status status = rank.finish()[token];
      if (!at_fault) return;
      lost_seen.store(true);
      rank.expect(status.code() == Errc::kSystem, status.ok() ? "ok" : status.message());
      rank.expect(status.message().find("cannot be written. Does it map a file") != std::string::npos, "the text");
      rank.expect(rank.backend().lost_peer().value_or(EndedLink{}).peer == -1, "a neighbour is blamed");
    }));
  }
}

TEST_CASE("tcp faults: a ring that cannot be made is an error on every member, naming the one that failed") {
  ThreadGroup group(3, [](const backend::GroupSpec& spec, const backend::Services& services, TimePoint deadline) {
    backend::Services broken = services;
    if (spec.index == 1) broken.local_host = "192.0.2.1";  // not an address of this machine
    return make_tcp(spec, broken, deadline);
  });
  std::vector<std::string> texts(3);
  std::vector<std::thread> ranks;
  for (std::size_t i = 0; i < 3; ++i) {
    ranks.emplace_back([&, i] {
      const auto made = group.create(static_cast<int>(i), deadline_after(kTcpTimeLimit));
      texts[i] = made.ok() ? "" : made.status().message();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(texts[0].find("rank 1: ") != std::string::npos);
  CHECK(texts[0].find("192.0.2.1") != std::string::npos);
  CHECK(texts == std::vector<std::string>(3, texts[0]));
}

namespace {

// A store in which the key of member 0 never appears, so this member cannot find member 0.
class Lost : public net::Store {
 public:
  Lost(net::Store& inner, std::atomic<bool>& looked) : inner_(inner), looked_(looked) {}
  Status set(const std::string& key, const std::string& value) override { return inner_.set(key, value); }
  Result<std::string> get(const std::string& key, TimePoint deadline) override {
    if (key != "tcp/0/0") return inner_.get(key, deadline);
    looked_ = true;
    return inner_.get("nobody sets this", deadline);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t delta) override { return inner_.add(key, delta); }
  Result<std::optional<std::string>> swap(const std::string& key, const std::optional<std::string>& expected,
                                          const std::optional<std::string>& wanted) override {
    return inner_.swap(key, expected, wanted);
  }
  Result<std::int64_t> count(const std::string& prefix) override { return inner_.count(prefix); }
  Status erase(const std::string& prefix, int members) override { return inner_.erase(prefix, members); }

 private:
  net::Store& inner_;
  std::atomic<bool>& looked_;
};

}  // namespace

TEST_CASE("tcp faults: who waits for a neighbour's connection hears that it has died on its way") {
  std::atomic<bool> looked{false};  // member 1 has accepted member 0, which now waits for it
  ThreadGroup group(2, [&](const backend::GroupSpec& spec, const backend::Services& services, TimePoint deadline) {
    Lost lost(*services.store, looked);
    backend::Services own = services;
    if (spec.index == 1) own.store = &lost;
    return make_tcp(spec, own, deadline);
  });
  std::vector<Status> ends(2);
  std::vector<std::thread> ranks;
  for (std::size_t i = 0; i < 2; ++i) {
    ranks.emplace_back([&, i] { ends[i] = group.create(static_cast<int>(i), deadline_after(600)).status(); });
  }
  while (!looked) std::this_thread::yield();
  group.store().fail({Errc::kRankLost, "rank 1 was lost"});
  for (std::thread& rank : ranks) rank.join();
  for (const Status& end : ends) CHECK(end.code() == Errc::kRankLost);
}

}  // namespace distrun::test
