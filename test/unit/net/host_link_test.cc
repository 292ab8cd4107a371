// connect_host and share() with ranks as threads. host_link_process_test.cc tests real processes and their deaths.
#include "runtime/net/host/host_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/net/host/host_candidates.h"
#include "runtime/net/host/shared_memory.h"
#include "test/support/fake_store.h"
#include "test/support/ranks.h"

namespace distrun::net {
namespace {

using test::run_ranks;

struct Job {
  explicit Job(int ranks) : size(ranks) {}
  Result<std::unique_ptr<HostLink>> connect(int rank, double seconds = 30) {
    World world{.rank = rank, .size = size, .local_rank = rank, .local_size = size, .job_id = "job"};
    return connect_host({.world = &world, .key = &key, .store = &store, .deadline = deadline_after(seconds)});
  }
  int size;
  JobKey key = JobKey::generate();
  test::FakeStore store;
};

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// The number of lines in /proc/PATH that contain `word`.
std::ptrdiff_t lines_with(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find(word) != std::string::npos ? 1 : 0;
  return count;
}

TEST_CASE("the ranks of a host are connected, any number of times, and leave nothing behind", "[host_link]") {
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    CAPTURE(size);
    Job job(size);
    const auto before = open_descriptors();
    for (int round = 0; round < 2; ++round) {
      run_ranks(size, [&](int rank) {
        auto link = job.connect(rank);
        EXPECT_OK(link);
        EXPECT_EQ((*link)->ranks().size(), static_cast<std::size_t>(size));
        EXPECT_EQ((*link)->ranks()[static_cast<std::size_t>(rank)], rank);
        EXPECT(!(*link)->lost());
        for (int other = 0; other < size; ++other) (*link)->ring(other);
        (*link)->ring_all((*link)->ranks());
      });
      CHECK(open_descriptors() == before);
      CHECK(lines_with("/proc/self/maps", "memfd:distrun") == 0);
    }
  }
}

TEST_CASE("shared memory is zeroed, page-aligned, the same for all members, and its size is sealed", "[host_link]") {
  Job job(4);
  run_ranks(4, [&](int rank) {
    auto link = job.connect(rank);
    EXPECT_OK(link);
    for (int nth = 0; nth < 3; ++nth) {  // the same name again gives new memory
      auto all = (*link)->share("all", {0, 1, 2, 3}, 10'000, deadline_after(30));
      EXPECT_OK(all);
      EXPECT_EQ(all->bytes.size(), std::size_t{10'000});
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all->bytes.data()) % 4096, std::uintptr_t{0});
      for (const std::byte b : all->bytes.subspan(64)) EXPECT(b == std::byte{0});
      std::atomic_ref<int> arrived(*reinterpret_cast<int*>(all->bytes.data()));
      arrived.fetch_add(1);
      while (arrived.load() < 4) std::this_thread::yield();
      if (rank == 0) continue;  // members without the leader of the host
      auto some = (*link)->share("some", {1, 2, 3}, 64, deadline_after(30));
      EXPECT_OK(some);
      std::atomic_ref<int> sum(*reinterpret_cast<int*>(some->bytes.data()));
      sum.fetch_add(rank);
      while (sum.load() < 6) std::this_thread::yield();
    }
    auto alone = (*link)->share("alone", {rank}, 1, deadline_after(30));
    EXPECT_OK(alone);
  });
}

TEST_CASE("a rank that cannot get memory is an error of share() on all members, and the next share works",
          "[host_link]") {
  Job job(3);
  std::atomic<int> refused{0};
  run_ranks(3, [&](int rank) {
    auto link = job.connect(rank);
    EXPECT_OK(link);
    // This is more than the memory of the host, so the first member's reservation fails.
    auto memory = (*link)->share("huge", {0, 1, 2}, std::size_t{1} << 50, deadline_after(30));
    EXPECT_EQ(memory.status().code(), Errc::kOutOfMemory);
    EXPECT(memory.status().message().find("do not fit") != std::string::npos);
    refused.fetch_add(1);
    EXPECT_OK((*link)->share("small", {0, 1, 2}, 4096, deadline_after(30)));
  });
  CHECK(refused == 3);
}

TEST_CASE("a member that does not come is a timeout that names it", "[host_link]") {
  Job job(2);
  std::atomic<bool> gave_up{false};
  run_ranks(2, [&](int rank) {
    auto link = job.connect(rank);
    EXPECT_OK(link);
    if (rank == 1) gave_up.wait(false);
    const auto memory = (*link)->share("window", {0, 1}, 4096, deadline_after(rank == 0 ? 0.05 : 30));
    EXPECT_EQ(memory.status().code(), Errc::kTimeout);
    EXPECT(memory.status().message().find("rank 1") != std::string::npos);
    gave_up = true;
    gave_up.notify_all();
    // Late packets of the failed share do not disturb the next one.
    EXPECT_OK((*link)->share("another window", {0, 1}, 4096, deadline_after(30)));
  });
}

TEST_CASE("a member that leaves is lost to a share that waits for it", "[host_link]") {
  Job job(3);
  run_ranks(3, [&](int rank) {
    auto link = job.connect(rank);
    EXPECT_OK(link);
    if (rank == 1) return;
    const auto memory = (*link)->share("window", {0, 1, 2}, 4096, deadline_after(30));
    EXPECT_EQ(memory.status().code(), Errc::kRankLost);
    EXPECT_EQ(memory.status().info().ranks, std::vector<int>{1});
  });
}

TEST_CASE("a rank that does not come to the set-up is named, within the deadline", "[host_link]") {
  Job job(3);
  run_ranks(3, [&](int rank) {
    if (rank == 2) {
      // This rank publishes its host like the others and then does nothing.
      const World world{.rank = 2, .size = 3};
      EXPECT_OK(find_candidates(world, host_hint(2), &job.store, deadline_after(30)));
      return;
    }
    const auto link = job.connect(rank, 3.0);
    EXPECT(!link.ok());
    if (rank == 0) EXPECT(link.status().message().find("did not connect in time: 2") != std::string::npos);
  });
}

TEST_CASE("a rank with another key is not let in, and all get an error", "[host_link]") {
  Job job(3);
  const JobKey other_key = JobKey::generate();
  run_ranks(3, [&](int rank) {
    World world{.rank = rank, .size = 3, .job_id = "job"};
    const auto link = connect_host({.world = &world,
                                    .key = rank == 2 ? &other_key : &job.key,
                                    .store = &job.store,
                                    .deadline = deadline_after(20)});
    EXPECT(!link.ok());
  });
}

TEST_CASE("ranks are grouped by their hint, in every round anew", "[host_link]") {
  test::FakeStore store;
  for (int round = 0; round < 3; ++round) {
    run_ranks(5, [&](int rank) {
      const World world{.rank = rank, .size = 5};
      const auto found = find_candidates(world, rank % 2 == 0 ? "even" : "odd", &store, deadline_after(30));
      EXPECT_OK(found);
      EXPECT_EQ(found->ranks, rank % 2 == 0 ? (std::vector<int>{0, 2, 4}) : (std::vector<int>{1, 3}));
    });
  }
  CHECK_FALSE(host_hint(0).empty());
  CHECK(host_hint(0) == host_hint(1));
}

TEST_CASE("a descriptor that is not sealed, reserved memory of the right size is refused", "[host_link]") {
  const auto memfd = [](off_t bytes, bool reserve, int seals) {
    Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE((reserve ? ::fallocate(fd.get(), 0, 0, bytes) : ::ftruncate(fd.get(), bytes)) == 0);
    REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
  };
  constexpr int kFixed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  CHECK(SharedMemory::adopt(memfd(8192, true, kFixed), 8192).ok());
  CHECK_FALSE(SharedMemory::adopt(memfd(8192, true, 0), 8192).ok());
  CHECK_FALSE(SharedMemory::adopt(memfd(8192, true, F_SEAL_GROW), 8192).ok());
  CHECK_FALSE(SharedMemory::adopt(memfd(8192, false, kFixed), 8192).ok());
  CHECK_FALSE(SharedMemory::adopt(memfd(4096, true, kFixed), 8192).ok());
  CHECK_FALSE(SharedMemory::adopt(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)), 8192).ok());
}

}  // namespace
}  // namespace distrun::net
