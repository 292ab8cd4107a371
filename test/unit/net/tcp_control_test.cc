#include "runtime/net/control/tcp_control.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/net/bytes/wire.h"
#include "runtime/net/secure/secure_socket.h"
#include "test/support/fake_store.h"
#include "test/support/ranks.h"
#include "test/support/store_thread.h"

namespace distrun::net {
namespace {

using test::run_ranks;
using Bytes = std::vector<std::byte>;

TimePoint soon() { return deadline_after(40); }

struct Group {
  explicit Group(int members) : size(members) {}
  int size;
  JobKey key = JobKey::generate();
  test::FakeStore store;
};

// One rank's end of the group, as a session holds it.
struct Member {
  Member(Group& group, int rank, std::vector<int> members = {}) {
    world.rank = rank;
    world.size = group.size;
    world.job_id = "job";
    auto made = WaitSet::create();
    EXPECT_OK(made);
    wait_set = *std::move(made);
    auto plane = connect_tcp_control({.world = &world,
                                      .key = &group.key,
                                      .store = &group.store,
                                      .wait_set = wait_set.get(),
                                      .deadline = soon(),
                                      .members = std::move(members)});
    EXPECT_OK(plane);
    control = *std::move(plane);
  }

  Received next() {
    Received message;
    while (!control->receive(message)) {
      EXPECT(!control->lost());
      EXPECT_OK(wait_set->poll(soon()));
      EXPECT(Clock::now() < soon());
      control->progress();
    }
    return message;
  }
  void drain() {
    while (control->pending()) {
      control->progress();
      if (control->pending()) EXPECT_OK(wait_set->poll(soon()));
    }
  }
  int wait_for_loss() {
    while (!control->lost()) EXPECT_OK(wait_set->poll(soon()));
    return control->lost()->peer;
  }

  World world;
  std::unique_ptr<WaitSet> wait_set;
  std::unique_ptr<ControlPlane> control;
};

Bytes text(const std::string& value) { return WireWriter().string(value).take(); }
std::string text(const Bytes& bytes) { return WireReader(bytes).string(1000); }

TEST_CASE("a leader that waits for members is told that one has died on its way", "[tcp_control]") {
  test::StoreThread server(3);
  const auto store = server.connect(0);
  const World world = server.world(0);
  auto wait_set = WaitSet::create();
  REQUIRE(wait_set.ok());
  server.publish({.rank = 2, .signal = 9, .host = "h2", .cause = "killed by signal 9 (SIGKILL)"});
  const auto plane = connect_tcp_control(
      {.world = &world, .key = &server.key(), .store = store.get(), .wait_set = wait_set->get(), .deadline = soon()});
  CHECK(plane.status().code() == Errc::kRankLost);
  CHECK(plane.status().info().ranks == std::vector<int>{2});
}

TEST_CASE("members talk to the leader and the leader to all", "[tcp_control]") {
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    Group group(size);
    run_ranks(size, [&](int rank) {
      Member member(group, rank);
      EXPECT_EQ(member.control->rank(), rank);
      EXPECT_EQ(member.control->size(), size);
      for (int round = 0; round < 20; ++round) {
        if (rank == 0) {
          std::set<int> came;
          for (int i = 1; i < size; ++i) {
            const Received message = member.next();
            EXPECT_EQ(text(message.bytes), "from " + std::to_string(message.from) + "/" + std::to_string(round));
            EXPECT(came.insert(message.from).second);
          }
          EXPECT_OK(member.control->broadcast(text("all/" + std::to_string(round))));
          if (size > 1) EXPECT_OK(member.control->send(size - 1, text("last/" + std::to_string(round))));
          member.drain();
        } else {
          EXPECT_OK(member.control->send(0, text("from " + std::to_string(rank) + "/" + std::to_string(round))));
          member.drain();
          EXPECT_EQ(text(member.next().bytes), "all/" + std::to_string(round));
          if (rank == size - 1) EXPECT_EQ(text(member.next().bytes), "last/" + std::to_string(round));
        }
      }
      EXPECT(!member.control->lost());
      // No rank may leave before all are done, because the end of a connection is a loss.
      EXPECT_OK(group.store.add("done", 1));
      while (*group.store.add("done", 0) < size) std::this_thread::yield();
    });
  }
}

TEST_CASE("messages of a pair keep their order and their size", "[tcp_control]") {
  Group group(2);
  const std::vector<std::size_t> sizes{0, 1, 100000, 3, std::size_t{16} << 20, 5, 65518};
  std::atomic<bool> sent{false};
  run_ranks(2, [&](int rank) {
    Member member(group, rank);
    if (rank == 1) {
      for (const std::size_t size : sizes) EXPECT_OK(member.control->send(0, Bytes(size, std::byte{7})));
      EXPECT(member.control->pending());
      sent.store(true);
      member.drain();
      EXPECT_EQ(text(member.next().bytes), "bye");
    } else {
      while (!sent.load()) std::this_thread::yield();  // otherwise everything might have gone through
      for (const std::size_t size : sizes) EXPECT_EQ(member.next().bytes.size(), size);
      EXPECT_OK(member.control->broadcast(text("bye")));
      member.drain();
      EXPECT_EQ(member.wait_for_loss(), 1);
    }
  });
}

TEST_CASE("a message above 16 MiB is refused and the group lives on", "[tcp_control]") {
  Group group(2);
  run_ranks(2, [&](int rank) {
    Member member(group, rank);
    if (rank == 1) {
      EXPECT_EQ(member.control->send(0, Bytes((std::size_t{16} << 20) + 1)).code(), Errc::kInvalidArgument);
      EXPECT(!member.control->pending());
      EXPECT_OK(member.control->send(0, text("small")));
      member.drain();
      EXPECT_EQ(text(member.next().bytes), "ok");
    } else {
      EXPECT_EQ(text(member.next().bytes), "small");
      EXPECT_OK(member.control->broadcast(text("ok")));
      member.drain();
      member.wait_for_loss();
    }
  });
}

TEST_CASE("a member's death wakes the leader, which still hears the others", "[tcp_control]") {
  for (const int size : {2, 3, 5}) {
    Group group(size);
    run_ranks(size, [&](int rank) {
      auto member = std::make_unique<Member>(group, rank);
      if (rank == size - 1) {
        EXPECT_OK(member->control->send(0, text("last words")));
        member->drain();
        return;  // its sockets end here
      }
      if (rank != 0) {
        EXPECT_EQ(text(member->next().bytes), "gone");
        EXPECT_OK(member->control->send(0, text("heard")));
        member->drain();
        EXPECT_EQ(text(member->next().bytes), "bye");
        return;
      }
      EXPECT_EQ(text(member->next().bytes), "last words");
      EXPECT_EQ(member->wait_for_loss(), size - 1);
      const Status lost = member->control->send(size - 1, text("x"));
      EXPECT_EQ(lost.code(), Errc::kRankLost);
      EXPECT_EQ(lost.info().ranks.at(0), size - 1);
      EXPECT_EQ(member->control->broadcast(text("gone")).code(), Errc::kRankLost);
      member->drain();
      for (int i = 1; i < size - 1; ++i) {
        Received message;
        while (!member->control->receive(message)) EXPECT_OK(member->wait_set->poll(soon()));
        EXPECT_EQ(text(message.bytes), "heard");
      }
      // A lost member does not wake the wait set again, so it can sleep.
      const auto woken = member->wait_set->poll(deadline_after(0.05));
      EXPECT_OK(woken);
      EXPECT_EQ(*woken, 0);
      (void)member->control->broadcast(text("bye"));
      member->drain();
    });
  }
}

TEST_CASE("the leader's death wakes every member", "[tcp_control]") {
  Group group(4);
  run_ranks(4, [&](int rank) {
    Member member(group, rank);
    if (rank == 0) return;
    EXPECT_EQ(member.wait_for_loss(), 0);
    EXPECT_EQ(member.control->send(0, text("x")).code(), Errc::kRankLost);
  });
}

TEST_CASE("a member that does not read for 7 s is not lost, and then gets everything", "[tcp_control]") {
  Group group(2);
  std::atomic<bool> read_on{false};
  run_ranks(2, [&](int rank) {
    Member member(group, rank);
    if (rank == 1) {
      read_on.wait(false);
      EXPECT_EQ(member.next().bytes.size(), std::size_t{16} << 20);
      return;
    }
    EXPECT_OK(member.control->broadcast(Bytes(std::size_t{16} << 20)));
    for (const TimePoint over = deadline_after(7); Clock::now() < over;) {
      EXPECT_OK(member.wait_set->poll(over));
      member.control->progress();
      EXPECT(!member.control->lost());
    }
    EXPECT(member.control->pending());
    read_on = true;
    read_on.notify_all();
    member.drain();
    EXPECT_EQ(member.wait_for_loss(), 1);
  });
}

TEST_CASE("a member that may go is missed by nobody, also where its end shows in a write first", "[tcp_control]") {
  // There are more members than the leader hears in one turn. It must read the others' messages before the last one's
  // end.
  constexpr int kSize = 70;
  Group group(kSize);
  std::atomic<int> said{0};
  std::atomic<int> stage{0};
  const auto wait_for = [](const std::atomic<int>& value, int least) {
    while (value.load() < least) std::this_thread::yield();
  };
  run_ranks(kSize, [&](int rank) {
    auto member = std::make_unique<Member>(group, rank);
    if (rank == kSize - 1) {
      wait_for(stage, 1);
      member.reset();  // a message is unread, so the connection is reset
      stage = 2;
    } else if (rank > 0) {
      EXPECT_OK(member->control->send(0, text("hi")));
      member->drain();
      ++said;
      wait_for(stage, 3);
    } else {
      EXPECT_OK(member->control->broadcast(text("first")));
      member->control->progress();
      wait_for(said, kSize - 2);
      stage = 1;
      wait_for(stage, 2);
      member->control->may_go(kSize - 1);
      for (int again = 0; again < 3; ++again) {
        EXPECT_OK(member->control->broadcast(text("more")));
        member->control->progress();
      }
      EXPECT(!member->control->lost());
      stage = 3;
    }
  });
}

TEST_CASE("a group of some ranks counts by member index", "[tcp_control]") {
  Group group(5);
  run_ranks(2, [&](int thread) {
    const std::vector<int> members{4, 2};
    Member member(group, members[static_cast<std::size_t>(thread)], members);
    EXPECT_EQ(member.control->rank(), thread);
    if (thread == 1) {
      EXPECT_OK(member.control->send(0, text("hi")));
      member.drain();
      member.wait_for_loss();
    } else {
      const Received message = member.next();
      EXPECT_EQ(message.from, 1);
    }
  });
}

TEST_CASE("ranks that do not come are named at the deadline", "[tcp_control]") {
  Group group(4);
  World world;
  world.size = 4;
  world.job_id = "job";
  auto wait_set = WaitSet::create();
  TcpControlOptions options{.world = &world,
                            .key = &group.key,
                            .store = &group.store,
                            .wait_set = wait_set->get(),
                            .deadline = deadline_after(0.05)};
  const auto leader = connect_tcp_control(options);
  CHECK(leader.status().code() == Errc::kTimeout);
  CHECK(leader.status().message().find("rank(s) 1, 2, 3") != std::string::npos);
  World other = world;
  other.rank = 2;
  Group empty(4);
  options.world = &other;
  options.store = &empty.store;
  const auto member = connect_tcp_control(options);
  CHECK(member.status().code() == Errc::kTimeout);
  CHECK(member.status().message().find("rank 0") != std::string::npos);
}

TEST_CASE("a rank outside the group and a second claimant are turned away", "[tcp_control]") {
  Group group(3);
  run_ranks(3, [&](int rank) {
    if (rank != 2) {
      Member member(group, rank, {0, 1});
      EXPECT_OK(group.store.get("done", soon()));
      EXPECT(!member.control->lost());
      return;
    }
    const auto address = group.store.get("control/job", soon());
    EXPECT_OK(address);
    const Hello hello{.purpose = "control:job", .job_id = "job", .from = 2, .to = 0};
    // Refused while the leader listens, or the leader no longer listens.
    EXPECT(!connect_secure(*address, group.key, hello, soon()).ok());
    EXPECT_OK(group.store.set("done", ""));
  });
}

// Runs in its own process, because the hard limit cannot be raised again.
bool leader_with_few_files_is_refused() {
  Group group(30);
  const World world{.rank = 0, .size = group.size, .job_id = "job"};
  const auto wait_set = WaitSet::create();
  const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
  ::close(next);
  const auto most = static_cast<rlim_t>(next) + 10;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const auto plane = connect_tcp_control({.world = &world,
                                          .key = &group.key,
                                          .store = &group.store,
                                          .wait_set = wait_set->get(),
                                          .deadline = soon(),
                                          .members = {}});
  return plane.status().message().starts_with(
             "rank 0 needs a connection to each of 29 other ranks, but it can open only ") &&
         !group.store.get("control/job", deadline_after(0)).ok();
}

TEST_CASE("a leader that may not open a file for each member says so before anybody connects") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(leader_with_few_files_is_refused() ? 0 : 1);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace distrun::net
