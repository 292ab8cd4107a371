// The direct connections of the backend `tcp`, which the first all-to-all of a group makes. The tests cover when they
// are made, between which members, and failures.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/backend/tcp/mesh.h"
#include "test/backend/group_fixtures.h"
#include "test/backend/ranks.h"
#include "test/backend/tcp_making.h"

namespace distrun::test {
namespace {

using backend::Completed;
using backend::Operation;

// An all-to-all of equal blocks that owns its memory. Member i sends the value 100 i + j to member j.
struct Blocks {
  Blocks(int index, int size, std::size_t block_in)
      : me(index), block(block_in), counts(static_cast<std::size_t>(size * size), block_in) {
    for (int to = 0; to < size; ++to) in.insert(in.end(), block, static_cast<float>(100 * me + to));
    out.assign(in.size(), -1.0F);
    segment = {.in = reinterpret_cast<const std::byte*>(in.data()),
               .out = reinterpret_cast<std::byte*>(out.data()),
               .count = in.size()};
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  [[nodiscard]] Operation operation() const {
    return {.kind = OpKind::kAlltoall, .segments = {&segment, 1}, .counts = counts};
  }
  [[nodiscard]] bool right() const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] != static_cast<float>(100 * (i / block) + static_cast<std::size_t>(me))) return false;
    }
    return true;
  }

  int me;
  std::size_t block;
  std::vector<std::size_t> counts;
  std::vector<float> in, out;
  backend::Segment segment;
};

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// A counter that ranks in several processes share.
class SharedCount {
 public:
  SharedCount() {
    void* memory = ::mmap(nullptr, sizeof(*count_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    count_ = new (memory) std::atomic<int>(0);
  }
  ~SharedCount() { ::munmap(count_, sizeof(*count_)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  void arrive() const { ++*count_; }
  [[nodiscard]] int count() const { return *count_; }
  // Returns false if fewer than `arrivals` came in time.
  [[nodiscard]] bool wait_for(int arrivals) const {
    const TimePoint deadline = deadline_after(kTcpTimeLimit);
    while (*count_ < arrivals && Clock::now() < deadline) std::this_thread::yield();
    return *count_ >= arrivals;
  }

 private:
  std::atomic<int>* count_ = nullptr;
};

// Calls look() until some rank has noticed a loss, and for a short time after that. In this time no rank may report
// another loss.
void look_around(Rank& rank, int victim, const SharedCount& noticed) {
  const TimePoint deadline = deadline_after(kTcpTimeLimit);
  TimePoint end = deadline;
  bool ended = false;
  while (Clock::now() < end) {
    rank.hear();
    if (!rank.look()) std::this_thread::yield();
    if (!ended && (rank.backend().lost_peer().has_value() || rank.in_flight() == 0)) {
      ended = true;
      noticed.arrive();
    }
    if (end == deadline && noticed.count() > 0) end = deadline_after(0.2);
  }
  rank.expect(end < deadline, "nobody was reported lost");
  const int lost = rank.backend().lost_peer().value_or(EndedLink{}).peer;
  rank.expect(lost == -1 || lost == victim, "rank " + std::to_string(lost) + " was reported lost");
}

// Ends rank `victim` with SIGKILL when it has called look() `looks` times after the start of an all-to-all. This is the
// first all-to-all or a later one. Every other rank reports its outcome.
void kill_one(int size, int victim, bool in_setup, int looks) {
  const SharedCount noticed;
  const SharedCount count;
  const auto outcomes = run_ranks(RanksAs::kProcesses, size, [&](Rank& rank) {
    Blocks before(rank.index, size, 10);
    if (!in_setup) rank.run(before.operation(), "before");
    Blocks large(rank.index, size, std::size_t{1} << 20);
    rank.start(large.operation());
    if (rank.index == victim) {
      for (int i = 0; i < looks; ++i) rank.look();
      ::raise(SIGKILL);
    }
    // Only the engine knows the cause; here the test uses the lost connections instead. During set-up, a loss may also
    // be a connection that cannot be made. A rank that waits for the victim's connection then gets no event.
    if (in_setup) {
      look_around(rank, victim, noticed);
    } else {
      rank.expect(rank.look_until([&] { return rank.backend().lost_peer().has_value(); }), "nobody was reported lost");
      rank.expect(rank.backend().lost_peer().value_or(EndedLink{}).peer == victim, "the wrong rank was reported lost");
    }
    // No rank may end before all have looked, because its end would also look like a death.
    count.arrive();
    rank.expect(count.wait_for(size - 1), "somebody did not notice");
    rank.backend().abort(Status(ErrorInfo{.code = Errc::kRankLost, .message = "rank was killed", .ranks = {victim}}));
    for (const auto& [token, status] : rank.finish()) {
      const bool cause = status.code() == Errc::kRankLost && status.message() == "rank was killed";
      const std::string whom = "tcp: connecting to rank " + std::to_string(victim) + " at ";
      const bool unreached = in_setup && !status.ok() && status.message().starts_with(whom);
      rank.expect(cause || unreached, "not the cause: " + (status.ok() ? std::string() : status.message()));
    }
  });
  for (int r = 0; r < size; ++r) {
    CAPTURE(size, victim, in_setup, looks, r);
    const std::vector<std::string> dead{"the child ended without an outcome"};
    CHECK(outcomes[static_cast<std::size_t>(r)].failures == (r == victim ? dead : std::vector<std::string>{}));
  }
}

template <class Make>
void run_all(ThreadGroup& group, const Backends& backends, Make operation) {
  for (std::size_t i = 0; i < backends.size(); ++i) REQUIRE(backends[i]->start(operation(i), 1).ok());
  std::vector<Completed> completed;
  const TimePoint deadline = deadline_after(kTcpTimeLimit);
  while (completed.size() < backends.size() && Clock::now() < deadline) {
    for (std::size_t i = 0; i < backends.size(); ++i) {
      REQUIRE(group.wait_set(static_cast<int>(i))->poll(Clock::now()).ok());
      backends[i]->progress();
      backends[i]->completed(completed);
    }
  }
  REQUIRE(completed.size() == backends.size());
  for (const Completed& one : completed) REQUIRE(one.status.ok());
}

// Whether an idle backend lets the wait set sleep.
bool falls_silent(backend::Backend& idle, net::WaitSet& wait_set) {
  for (int looks = 0; looks < 100; ++looks) {
    if (*wait_set.poll(Clock::now()) == 0) return true;
    idle.progress();
  }
  return false;
}

// One rank of a job that has several groups, on one thread.
struct Groups {
  struct Member {
    std::unique_ptr<backend::Backend> backend;
    std::unique_ptr<Blocks> blocks;
    std::vector<Completed> completed;
  };

  Groups(int rank, net::Store& store, const net::JobKey& key, const std::map<std::string, std::vector<int>>& sets)
      : wait_set(*net::WaitSet::create()) {
    for (const auto& [id, members] : sets) {
      const auto found = std::ranges::find(members, rank);
      if (found == members.end()) continue;
      const int index = static_cast<int>(found - members.begin());
      auto made = make_tcp({.id = id, .members = members, .index = index},
                           {.world = &world, .key = &key, .store = &store, .wait_set = wait_set.get()},
                           deadline_after(kTcpTimeLimit));
      if (!made.ok()) continue;
      const int size = static_cast<int>(members.size());
      groups.push_back({.backend = *std::move(made), .blocks = std::make_unique<Blocks>(index, size, 50000)});
    }
  }

  // Starts the all-to-alls of all groups, in forward or reverse order, and waits for them.
  bool run(bool backwards) {
    if (backwards) std::ranges::reverse(groups);
    for (Member& one : groups) {
      if (!one.backend->start(one.blocks->operation(), 1).ok()) return false;
    }
    const TimePoint deadline = deadline_after(kTcpTimeLimit);
    const auto ended = [](const Member& one) { return !one.completed.empty(); };
    while (!std::ranges::all_of(groups, ended) && Clock::now() < deadline) {
      bool moved = false;
      for (Member& one : groups) {
        moved = one.backend->progress() || moved;
        one.backend->completed(one.completed);
      }
      if (!moved && !wait_set->poll(std::min(deadline, deadline_after(1))).ok()) continue;
    }
    return std::ranges::all_of(groups, [](const Member& one) {
      return one.completed.size() == 1 && one.completed[0].status.ok() && one.blocks->right();
    });
  }

  net::World world;
  std::unique_ptr<net::WaitSet> wait_set;
  std::vector<Member> groups;
};

}  // namespace

TEST_CASE("tcp alltoall: the first one connects all pairs, and who never calls it pays nothing") {
  for (const int size : {2, 3, 4, 5, 8}) {
    CAPTURE(size);
    ThreadGroup group(size, make_tcp);
    const auto backends = create_all(group, size);
    const std::size_t before = open_files();
    std::vector<float> values(backends.size(), 1.0F);
    std::vector<backend::Segment> segments;
    for (float& value : values) {
      auto* bytes = reinterpret_cast<std::byte*>(&value);
      segments.push_back({.in = bytes, .out = bytes, .count = 1});
    }
    run_all(group, backends, [&](std::size_t i) { return Operation{.segments = {&segments[i], 1}}; });
    CHECK(open_files() == before);
    for (int times = 0; times < 2; ++times) {
      std::vector<std::unique_ptr<Blocks>> blocks;
      for (int i = 0; i < size; ++i) blocks.push_back(std::make_unique<Blocks>(i, size, 1000));
      run_all(group, backends, [&](std::size_t i) { return blocks[i]->operation(); });
      for (const auto& one : blocks) CHECK(one->right());
      // One connection to each other member, and no listening socket any more.
      CHECK(open_files() == before + backends.size() * (backends.size() - 1));
      for (std::size_t i = 0; i < backends.size(); ++i)
        CHECK(falls_silent(*backends[i], *group.wait_set(static_cast<int>(i))));
    }
  }
}

TEST_CASE("tcp alltoall: a killed member is noticed by all in the middle of one", "[processes]") {
  for (const int size : {2, 3, 5}) {
    kill_one(size, 0, false, 1);  // one look() moves no more than half of a block
    kill_one(size, size - 1, false, 1);
  }
}

TEST_CASE("tcp alltoall: a killed member is noticed by all while the connections are made", "[processes]") {
  for (const int size : {2, 3, 5}) {
    for (const int looks : {0, 1, 2, 4}) kill_one(size, size / 2, true, looks);
  }
}

TEST_CASE("tcp alltoall: a member that cannot connect fails by itself, and the others take it for no loss",
          "[processes]") {
  for (const int size : {3, 5, 8}) {
    const SharedCount noticed;
    const SharedCount count;
    expect_success(run_ranks(RanksAs::kProcesses, size, [&](Rank& rank) {
      const bool fails = rank.index == size / 2;
      Blocks large(rank.index, size, std::size_t{1} << 20);
      rank.start(large.operation());
      if (fails) {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 3;
        ::setrlimit(RLIMIT_NOFILE, &limit);
      }
      look_around(rank, -1, noticed);
      rank.expect(rank.in_flight() == (fails ? 0 : 1), "the wrong member failed");
      count.arrive();
      rank.expect(count.wait_for(size), "somebody did not look");
      rank.backend().abort({Errc::kAborted, "the engine's word"});
      for (const auto& [token, status] : rank.finish()) {
        const std::string& text = status.ok() ? "success" : status.message();
        rank.expect(text.find(fails ? "Too many open files" : "the engine's word") != std::string::npos, text);
      }
    }));
  }
}

TEST_CASE("tcp alltoall: a member that comes late is waited for") {
  expect_success(run_ranks(RanksAs::kProcesses, 4, [](Rank& rank) {
    Blocks blocks(rank.index, 4, 100000);
    Blocks small(rank.index, 4, 1);
    // By then the other ranks are in the middle of the set-up. They have nothing more to send.
    const TimePoint later = deadline_after(0.2);
    while (rank.index == 2 && Clock::now() < later) rank.look();
    rank.start(blocks.operation());
    rank.start(small.operation());
    for (const auto& [token, status] : rank.finish()) rank.expect(status.ok(), "an operation failed");
    rank.expect(blocks.right() && small.right(), "wrong blocks");
  }));
}

TEST_CASE("tcp alltoall: between the ring's operations it keeps their order, and each its own data") {
  expect_success(run_ranks(RanksAs::kThreads, 4, [](Rank& rank) {
    std::vector<std::unique_ptr<Blocks>> blocks;
    std::vector<std::vector<float>> sums;
    std::vector<backend::Segment> segments(6);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      blocks.push_back(std::make_unique<Blocks>(rank.index, 4, i % 2 == 0 ? 50000 : 3));
      std::vector<float>& sum = sums.emplace_back(i % 2 == 0 ? 7 : 100000, static_cast<float>(rank.index));
      auto* bytes = reinterpret_cast<std::byte*>(sum.data());
      segments[i] = {.in = bytes, .out = bytes, .count = sum.size()};
    }
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (i != 2) rank.start(blocks[i]->operation());
      rank.start({.segments = {&segments[i], 1}});
      if (i == 2) rank.start(blocks[i]->operation());
      if (rank.index % 2 == 1) rank.look();
    }
    for (const auto& [token, status] : rank.finish()) rank.expect(status.ok(), "an operation failed");
    for (const auto& one : blocks) rank.expect(one->right(), "wrong blocks");
    for (const auto& sum : sums) rank.expect(std::ranges::count(sum, 6.0F) == std::ssize(sum), "a wrong sum");
  }));
}

TEST_CASE("tcp alltoall: abort ends it from another thread while the connections are made") {
  for (const int looks : {0, 1, 2, 4}) {
    const SharedCount count;
    expect_success(run_ranks(RanksAs::kThreads, 4, [&](Rank& rank) {
      Blocks large(rank.index, 4, std::size_t{1} << 20);
      rank.start(large.operation());
      for (int i = 0; i < looks && rank.index == 2; ++i, rank.hear()) rank.look();
      // The other ranks keep looking, and sleep when they have nothing to move, because rank 2 does not look.
      std::thread other([&] { rank.backend().abort({Errc::kAborted, "enough"}); });
      for (const auto& [token, status] : rank.finish()) {
        rank.expect(status.code() == Errc::kAborted && status.message() == "enough", "not the cause");
      }
      other.join();
      count.arrive();
      rank.expect(count.wait_for(4), "somebody did not end");
    }));
  }
}

TEST_CASE("tcp alltoall: process sets connect on their own, several at once and in any order") {
  const std::map<std::string, std::vector<int>> sets = {
      {"all", {0, 1, 2, 3, 4}}, {"some", {1, 3, 4}}, {"others", {0, 1, 2, 4}}, {"two", {0, 3}}};
  const net::JobKey key = net::JobKey::generate();
  FakeStore store;
  std::vector<int> right(5);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 5; ++rank) {
    ranks.emplace_back([&, rank] {
      right[static_cast<std::size_t>(rank)] = Groups(rank, store, key, sets).run(rank % 2 == 0) ? 1 : 0;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(right == std::vector<int>(5, 1));
}

TEST_CASE("tcp alltoall: a connection to everybody raises the limit of open files, and too low a one is told") {
  for (const bool can_be_raised : {true, false}) {
    expect_success(run_ranks(RanksAs::kProcesses, 3, [can_be_raised](Rank& rank) {
      if (rank.index == 1) {
        const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
        ::close(next);
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = static_cast<rlim_t>(next) + 4;  // the listener takes three of these
        if (!can_be_raised) limit.rlim_max = limit.rlim_cur;
        ::setrlimit(RLIMIT_NOFILE, &limit);
      }
      Blocks blocks(rank.index, 3, 10);
      if (can_be_raised) {
        rank.run(blocks.operation(), "alltoall");
        rank.expect(blocks.right(), "wrong blocks");
      } else if (rank.index == 1) {
        const Status status = rank.backend().start(blocks.operation(), 1);
        const bool names_cause = !status.ok() && status.message().find("other 2 members") != std::string::npos &&
                                 status.message().find("it can open only 1 more files") != std::string::npos;
        rank.expect(names_cause, status.ok() ? "it was started" : status.message());
      }
    }));
  }
}

TEST_CASE("tcp alltoall: two that connect at the same time do not count the same descriptors") {
  expect_success(run_ranks(RanksAs::kProcesses, 1, [](Rank& rank) {
    const net::World world;
    const net::JobKey key = net::JobKey::generate();
    const auto wait_set = *net::WaitSet::create();
    const auto open = [&](const std::string& id) {
      return backend::tcp::Mesh::open({.id = id, .members = {0, 1, 2}, .index = 0},
                                      {.world = &world, .key = &key, .wait_set = wait_set.get()}, {}, {});
    };
    const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
    ::close(next);
    const auto most = static_cast<rlim_t>(next) + 9;  // each group's listener takes three of these
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto first = open("first");
    rank.expect(first.ok(), "the first one does not fit");
    const auto second = open("second");
    const bool names_cause = !second.ok() && second.status().message().find("only 1 more files") != std::string::npos;
    rank.expect(names_cause, second.ok() ? "the second one fits" : second.status().message());
  }));
}

}  // namespace distrun::test
