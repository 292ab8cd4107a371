#include "runtime/net/host/host_limits.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace distrun::net {
namespace {

// A directory with copies of the few system files that are read.
class Tree {
 public:
  Tree() : root_(std::filesystem::temp_directory_path() / ("host_limits_test." + std::to_string(::getpid()))) {
    write("proc/meminfo", "MemTotal: 64000000 kB\nMemFree: 1 kB\nMemAvailable: 32000000 kB\n");
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  const std::filesystem::path root_;
};

constexpr std::uint64_t kMiB = 1 << 20;

void refused(const Tree& tree, std::uint64_t bytes, const std::string& where) {
  const Status status = check_memory(bytes, tree.root());
  REQUIRE_FALSE(status.ok());
  CHECK(status.code() == Errc::kOutOfMemory);
  INFO(status.message());
  CHECK(status.message().find(where) != std::string::npos);
}

TEST_CASE("memory: the tightest control group on the way to the root decides", "[host_limits]") {
  const Tree tree;
  tree.write("proc/self/cgroup", "0::/job/rank\n");
  tree.write("sys/fs/cgroup/job/rank/memory.max", "max\n");
  tree.write("sys/fs/cgroup/job/rank/memory.current", "1000\n");
  CHECK(check_memory(100 * kMiB, tree.root()).ok());
  tree.write("sys/fs/cgroup/job/memory.max", std::to_string(64 * kMiB) + "\n");
  tree.write("sys/fs/cgroup/job/memory.current", std::to_string(40 * kMiB) + "\n");
  refused(tree, 25 * kMiB, "/sys/fs/cgroup/job/memory.max");
  CHECK(check_memory(24 * kMiB, tree.root()).ok());
  // File pages that the kernel can reclaim count as free.
  tree.write("sys/fs/cgroup/job/memory.stat",
             "anon 5\ninactive_file " + std::to_string(8 * kMiB) + "\nactive_file " + std::to_string(2 * kMiB) + "\n");
  CHECK(check_memory(34 * kMiB, tree.root()).ok());
  refused(tree, 35 * kMiB, "67108864 bytes");
}

TEST_CASE("memory: version 1 groups, and a path that is not visible in a container", "[host_limits]") {
  const Tree tree;
  tree.write("proc/self/cgroup", "9:name=systemd:/x\n4:memory:/docker/0123\n1:cpu,cpuacct:/docker/0123\n");
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  CHECK(check_memory(100 * kMiB, tree.root()).ok());
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(10 * kMiB));
  refused(tree, 11 * kMiB, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
}

TEST_CASE("memory: what is free on the machine", "[host_limits]") {
  const Tree tree;
  refused(tree, std::uint64_t{40'000'000} * 1024, "/proc/meminfo");
  CHECK(check_memory(std::uint64_t{31'000'000} * 1024, tree.root()).ok());
}

TEST_CASE("memory: files that are missing or senseless do not limit", "[host_limits]") {
  const Tree tree;
  tree.write("proc/meminfo", "");
  CHECK(check_memory(kMiB, tree.root()).ok());
  for (const char* text : {"", ":", "::", "0::", "0::relative", "0::/", "\n\n", "4:memory", "0::/a/../..\n0::/b//c/"}) {
    tree.write("proc/self/cgroup", text);
    CHECK(check_memory(kMiB, tree.root()).ok());
  }
  tree.write("sys/fs/cgroup/memory.max", "lots\n");
  tree.write("sys/fs/cgroup/memory.current", "-1\n");
  CHECK(check_memory(kMiB, tree.root()).ok());
}

TEST_CASE("cores: this process has some, and a quota where its group has one", "[host_limits]") {
  const Tree tree;
  CoreShare share = core_share(tree.root());
  CHECK(share.cores.any());
  CHECK(share.quota_owner == 0);
  tree.write("proc/self/cgroup", "0::/job/rank\n");
  tree.write("sys/fs/cgroup/job/rank/cpu.max", "max 100000\n");
  CHECK(core_share(tree.root()).quota_owner == 0);
  tree.write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  share = core_share(tree.root());
  CHECK(share.quota_owner != 0);
  CHECK(share.quota_millis == 1500);
  tree.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  tree.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  tree.write("proc/self/cgroup", "1:cpu,cpuacct:/job\n");
  CHECK(core_share(tree.root()).quota_owner == 0);
  tree.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
  CHECK(core_share(tree.root()).quota_millis == 2000);
}

CoreShare on_cores(const std::vector<std::size_t>& cores, std::uint64_t owner = 0, std::uint64_t millis = 0) {
  CoreShare share;
  for (const std::size_t core : cores) share.cores.set(core);
  share.quota_owner = owner;
  share.quota_millis = millis;
  return share;
}

bool crowded(const std::vector<CoreShare>& ranks) { return oversubscribed(ranks); }

TEST_CASE("oversubscribed: more ranks than cores, in all or in one mask", "[host_limits]") {
  CHECK_FALSE(crowded({on_cores({0})}));
  CHECK_FALSE(crowded({on_cores({0, 1}), on_cores({0, 1})}));
  CHECK(crowded({on_cores({0, 1}), on_cores({0, 1}), on_cores({0, 1})}));
  CHECK_FALSE(crowded({on_cores({0}), on_cores({1})}));  // each rank is bound to its own core
  CHECK(crowded({on_cores({3}), on_cores({3})}));
  CHECK(crowded({on_cores({0}), on_cores({0}), on_cores({0, 1, 2, 3})}));
  CHECK(crowded({on_cores({}), on_cores({1})}));  // nothing is known: do not spin
}

TEST_CASE("oversubscribed: a quota counts for the ranks in its group only", "[host_limits]") {
  CHECK(crowded({on_cores({0, 1}, 7, 1000), on_cores({0, 1}, 7, 1000)}));
  CHECK(crowded({on_cores({0, 1}, 7, 1999), on_cores({0, 1}, 7, 1999)}));
  CHECK_FALSE(crowded({on_cores({0, 1}, 7, 2000), on_cores({0, 1}, 7, 2000)}));
  CHECK_FALSE(crowded({on_cores({0, 1}, 7, 1000), on_cores({0, 1}, 8, 1000)}));
  CHECK(crowded({on_cores({0}, 7, 500)}));
}

}  // namespace
}  // namespace distrun::net
