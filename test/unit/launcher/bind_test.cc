#include "launcher/plan/place/bind.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <numeric>
#include <random>

#include "launcher/agent/preflight/scan.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/place/assign.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

// Two nodes of four cores, with two hardware threads per core and one GPU near each node.
Topology big_host() {
  Topology out;
  for (int id = 0; id < 16; ++id) out.cpus.push_back({.id = id, .core = id % 8, .node = id % 8 / 4});
  out.gpus.push_back({.minor = 0,
                      .bus = "0000:3b:00.0",
                      .uuid = "GPU-aaaa",
                      .model = "X",
                      .node = 0,
                      .cpus = {0, 1, 2, 3, 8, 9, 10, 11}});
  out.gpus.push_back({.minor = 1,
                      .bus = "0000:af:00.0",
                      .uuid = "GPU-bbbb",
                      .model = "X",
                      .node = 1,
                      .cpus = {4, 5, 6, 7, 12, 13, 14, 15}});
  return out;
}

Topology without_gpus() {
  Topology out = big_host();
  out.gpus.clear();
  return out;
}

TEST_CASE("without GPUs nothing is pinned by default") {
  const auto bound = bind_ranks(without_gpus(), 4, {});
  REQUIRE(bound.ok());
  for (const Binding& binding : *bound) {
    CHECK(binding.cpus.empty());
    CHECK(binding.threads == 2);
    CHECK(binding.gpu == -1);
  }
  const auto crowded = bind_ranks(without_gpus(), 100, {});
  REQUIRE(crowded.ok());
  CHECK(crowded->front().threads == 1);
}

TEST_CASE("cores are shared out whole, with all their hardware threads") {
  const auto bound = bind_ranks(without_gpus(), 3, {.bind_to = BindTo::kCore});
  REQUIRE(bound.ok());
  CHECK((*bound)[0].cpus == std::vector<int>{0, 8, 1, 9});
  CHECK((*bound)[0].threads == 2);
  CHECK((*bound)[1].threads == 3);
  std::vector<int> all;
  for (const Binding& binding : *bound) all.insert(all.end(), binding.cpus.begin(), binding.cpus.end());
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  CHECK(all.size() == 16);
}

TEST_CASE("more ranks than cores share cores and say so") {
  const auto bound = bind_ranks(without_gpus(), 9, {.bind_to = BindTo::kCore});
  REQUIRE(bound.ok());
  CHECK((*bound)[8].cpus == (*bound)[0].cpus);
  CHECK((*bound)[8].cpu_reason.find("shared") != std::string::npos);
}

TEST_CASE("numa spreads ranks over nodes and threads over a node's cores") {
  const auto bound = bind_ranks(without_gpus(), 4, {.bind_to = BindTo::kNuma});
  REQUIRE(bound.ok());
  CHECK((*bound)[1].cpus == (*bound)[0].cpus);
  CHECK((*bound)[2].cpus != (*bound)[0].cpus);
  CHECK((*bound)[0].threads == 2);
}

TEST_CASE("with GPUs each rank is pinned near its own") {
  const auto bound = bind_ranks(big_host(), 2, {});
  REQUIRE(bound.ok());
  CHECK((*bound)[1].gpu == 1);
  CHECK((*bound)[1].gpu_name == "GPU-bbbb");
  CHECK((*bound)[1].cpus == std::vector<int>{4, 5, 6, 7, 12, 13, 14, 15});
  CHECK((*bound)[1].threads == 4);
}

TEST_CASE("nothing is pinned outside the allowed set") {
  Topology small = big_host();
  std::erase_if(small.cpus, [](const Cpu& cpu) { return cpu.id != 2 && cpu.id != 3; });
  for (const BindTo to : {BindTo::kCore, BindTo::kNuma, BindTo::kGpu}) {
    const auto bound = bind_ranks(small, 2, {.bind_to = to});
    REQUIRE(bound.ok());
    for (const Binding& binding : *bound) {
      for (const int cpu : binding.cpus) CHECK((cpu == 2 || cpu == 3));
    }
  }
  const auto bound = bind_ranks(small, 2, {.bind_to = BindTo::kGpu});
  CHECK((*bound)[1].cpus.empty());  // none of the cores near its GPU is allowed
  CHECK((*bound)[1].cpu_reason.find("none of its cores") != std::string::npos);
}

Topology seeing(const std::string& devices) {
  Topology out = big_host();
  out.visible_devices = devices;
  return out;
}

std::string names_in(const std::vector<PoolEntry>& pool) {
  std::vector<std::string> names;
  for (const PoolEntry& entry : pool) names.push_back(entry.name);
  return join(names, " ");
}

TEST_CASE("CUDA_VISIBLE_DEVICES is the pool, by number or UUID") {
  const auto by_number = bind_ranks(seeing("1"), 1, {});
  REQUIRE(by_number.ok());
  CHECK((*by_number)[0].gpu_name == "1");
  CHECK((*by_number)[0].cpus.front() == 4);
  const auto by_uuid = bind_ranks(seeing("GPU-bb,GPU-aaaa"), 2, {});
  REQUIRE(by_uuid.ok());
  CHECK((*by_uuid)[0].gpu_name == "GPU-bb");
  CHECK((*by_uuid)[0].cpus.front() == 4);
  const auto none = bind_ranks(seeing(""), 1, {});
  REQUIRE(none.ok());
  CHECK((*none)[0].gpu == -1);
  // As in CUDA: entries after an invalid one are not used.
  for (const char* list : {"0,7,1", "0,-1,1", "0,GPU-cc,1", "0,GPU-,1", "0,x,1", "0,,1", " 0 ,two"}) {
    CHECK(names_in(gpu_pool(seeing(list))) == "0");
  }
}

TEST_CASE("slices of a GPU in MIG mode are named in both forms") {
  const Topology old_form = seeing("MIG-GPU-bb/7/0,MIG-GPU-aaaa/1/0");
  const auto bound = bind_ranks(old_form, 2, {});
  REQUIRE(bound.ok());
  CHECK((*bound)[0].own_gpu_only);
  CHECK((*bound)[0].gpu_name == "MIG-GPU-bb/7/0");
  CHECK((*bound)[0].cpus.front() == 4);
  CHECK((*bound)[1].cpus.front() == 0);
  // The UUID of a slice does not show its GPU. The cores are then known only if there is no choice.
  const std::string slices = "MIG-0a1b,MIG-2c3d";
  const auto unknown = bind_ranks(seeing(slices), 2, {});
  REQUIRE(unknown.ok());
  CHECK((*unknown)[1].gpu_name == "MIG-2c3d");
  CHECK((*unknown)[1].cpus.empty());
  CHECK((*unknown)[1].cpu_reason.find("does not say which cores") != std::string::npos);
  Topology one_gpu = seeing(slices);
  one_gpu.gpus.pop_back();
  const auto known = bind_ranks(one_gpu, 2, {});
  REQUIRE(known.ok());
  CHECK((*known)[1].cpus.front() == 0);
  const auto two_each = bind_ranks(one_gpu, 1, {.gpus_per_rank = 2});
  REQUIRE_FALSE(two_each.ok());
  CHECK(two_each.status().message().find("only one slice") != std::string::npos);
}

TEST_CASE("several GPUs for each rank, with the cores of all their nodes") {
  const auto both = bind_ranks(big_host(), 1, {.gpus_per_rank = 2});
  REQUIRE(both.ok());
  CHECK((*both)[0].gpus == 2);
  CHECK((*both)[0].gpu_name == "GPU-aaaa,GPU-bbbb");
  CHECK((*both)[0].cpus.size() == 16);
  CHECK((*both)[0].threads == 8);
  CHECK(gpu_text((*both)[0]) == "0-1 X GPU-aaaa,GPU-bbbb");
  const auto one = bind_ranks(big_host(), 2, {.gpus_per_rank = 1});
  REQUIRE(one.ok());
  CHECK((*one)[1].gpu_name == "GPU-bbbb");
  // GPUs that the user asked for are not shared silently.
  CHECK(bind_ranks(big_host(), 2, {.gpus_per_rank = 2}).status().message() ==
        "--gpus-per-rank 2: 2 ranks need 4 GPUs and this host has 2 (see /proc/driver/nvidia/gpus). Place at most 1 "
        "rank there");
  CHECK(bind_ranks(seeing("1"), 2, {.gpus_per_rank = 2}).status().message() ==
        "--gpus-per-rank 2: 2 ranks need 4 GPUs and this host has 1 (CUDA_VISIBLE_DEVICES=1). Use fewer GPUs per rank");
}

TEST_CASE("cores and nodes are given out near each rank's GPU") {
  Topology crossed = big_host();
  crossed.visible_devices = "1,0";
  const auto numa = bind_ranks(crossed, 2, {.bind_to = BindTo::kNuma});
  REQUIRE(numa.ok());
  CHECK((*numa)[0].cpus == std::vector<int>{4, 5, 6, 7, 12, 13, 14, 15});
  CHECK((*numa)[0].cpu_reason == "--bind-to numa: all cores of NUMA node 1, near its GPU");
  const auto core = bind_ranks(crossed, 4, {.bind_to = BindTo::kCore});
  REQUIRE(core.ok());
  CHECK((*core)[0].cpus == std::vector<int>{4, 12, 5, 13});
  CHECK((*core)[1].cpus == std::vector<int>{0, 8, 1, 9});
  CHECK((*core)[2].cpus == std::vector<int>{6, 14, 7, 15});
  CHECK((*core)[3].threads == 2);
  // If the kernel knows the node of only one GPU, all ranks share all cores.
  crossed.gpus[0].node = -1;
  const auto all = bind_ranks(crossed, 2, {.bind_to = BindTo::kCore});
  REQUIRE(all.ok());
  CHECK((*all)[0].cpus == std::vector<int>{0, 8, 1, 9, 2, 10, 3, 11});
}

TEST_CASE("what --report-bindings says") {
  const auto bound = bind_ranks(big_host(), 2, {});
  REQUIRE(bound.ok());
  CHECK(binding_text((*bound)[1]) ==
        "CPUs 4-7,12-15 (4 threads), GPU 1 X GPU-bbbb; near its GPU (the default where there are GPUs): NUMA node 1");
  const auto free = bind_ranks(without_gpus(), 1, {});
  REQUIRE(free.ok());
  CHECK(
      binding_text((*free)[0]).starts_with("not pinned (8 threads), GPU none; not pinned (the default without GPUs)"));
}

TEST_CASE("more ranks than GPUs share them and say so") {
  const auto bound = bind_ranks(big_host(), 3, {});
  REQUIRE(bound.ok());
  CHECK((*bound)[2].gpu == 0);
  CHECK((*bound)[2].gpu_reason.find("shared") != std::string::npos);
  CHECK((*bound)[2].threads == 2);
}

TEST_CASE("--bind-to gpu without a GPU is an error that says so") {
  const auto bound = bind_ranks(without_gpus(), 1, {.bind_to = BindTo::kGpu});
  REQUIRE_FALSE(bound.ok());
  CHECK(bound.status().message().find("no GPU") != std::string::npos);
}

TEST_CASE("a copied /proc and /sys is scanned as this machine's") {
  const test::Sysroot tree;
  tree.write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2,5\n");
  tree.write("sys/devices/system/node/node0/cpulist", "0-3\n");
  tree.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  tree.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n");
  tree.write("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n");
  tree.write("proc/driver/nvidia/gpus/0000:af:00.0/information",
             "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-22\nDevice Minor: \t 1\n");
  tree.write("proc/driver/nvidia/gpus/0000:3b:00.0/information",
             "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-11\nDevice Minor: \t 0\n");
  tree.write("proc/driver/nvidia/gpus/0000:c1:00.0/information",
             "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-33\nDevice Minor: \t 2\n");
  tree.write("dev/nvidia0", "");
  tree.write("dev/nvidia1", "");
  tree.write("sys/bus/pci/devices/0000:af:00.0/numa_node", "1\n");
  tree.write("sys/bus/pci/devices/0000:af:00.0/local_cpulist", "4-7\n");
  tree.write("sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1\n");
  const Topology found = scan_topology(tree.path());
  REQUIRE(found.cpus.size() == 4);
  CHECK(found.cpus[0].core == found.cpus[2].core);
  CHECK(found.cpus[3] == Cpu{.id = 5, .core = 2, .node = 1});
  CHECK(count_cores(found.cpus) == 3);
  REQUIRE(found.gpus.size() == 2);  // the third one has no device file here: it belongs to another container
  CHECK(found.gpus[0].uuid == "GPU-11");
  CHECK(found.gpus[0].node == -1);
  CHECK(found.gpus[1].node == 1);
  CHECK(found.gpus[1].cpus == std::vector<int>{4, 5, 6, 7});
}

// Runs `check` as a user whom file modes restrict, also if root runs the tests. Returns the result of `check`.
template <class Check>
bool unprivileged(const Check& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(65534) == 0 || ::getuid() != 0 ? (check() ? 0 : 1) : 2);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("a GPU whose device file cannot be opened is somebody else's") {
  const test::Sysroot tree;
  for (const std::string n : {"0", "1"}) {
    tree.write("proc/driver/nvidia/gpus/0000:0" + n + ":00.0/information",
               "GPU UUID: \t GPU-" + n + "\nDevice Minor: \t " + n + "\n");
    tree.write("dev/nvidia" + n, "");
    std::filesystem::permissions(tree.path() + "dev/nvidia" + n, std::filesystem::perms(n == "0" ? 0 : 0666));
  }
  std::filesystem::permissions(tree.path(), std::filesystem::perms(0755));
  CHECK(unprivileged([&] {
    Topology found = scan_topology(tree.path());
    // Slurm numbers the GPUs of the job from 0.
    found.visible_devices = "0";
    const std::vector<PoolEntry> pool = gpu_pool(found);
    return pool.size() == 1 && pool.front().gpu != nullptr && pool.front().gpu->uuid == "GPU-1";
  }));
}

// One GPU for each text of CPU numbers. By default a rank is pinned to those near its GPU.
Topology with_gpus_near(const std::vector<std::vector<int>>& near) {
  Topology out;
  for (int id = 0; id < 8; ++id) out.cpus.push_back({.id = id, .core = id, .node = 0});
  for (std::size_t i = 0; i < near.size(); ++i) {
    out.gpus.push_back({.minor = static_cast<int>(i), .bus = std::to_string(i), .node = 0, .cpus = near[i]});
  }
  return out;
}

std::vector<int> threads_with_gpus_near(const std::vector<std::vector<int>>& near) {
  const auto bound = bind_ranks(with_gpus_near(near), static_cast<int>(near.size()), {});
  REQUIRE(bound.ok());
  std::vector<int> out;
  for (const Binding& binding : *bound) out.push_back(binding.threads);
  return out;
}

TEST_CASE("ranks whose CPUs overlap in part divide the cores that they share") {
  using Threads = std::vector<int>;
  CHECK(threads_with_gpus_near({{0, 1, 2, 3, 4, 5}, {2, 3, 4, 5, 6, 7}}) == Threads{4, 4});
  CHECK(threads_with_gpus_near({{0, 1, 2, 3, 4, 5, 6, 7}, {4, 5, 6, 7}}) == Threads{6, 2});
  CHECK(threads_with_gpus_near({{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5}}) == Threads{1, 1, 3});
  CHECK(threads_with_gpus_near({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}) == Threads{1, 1, 1});
  // Three ranks have one core. Each needs a thread, so the fourth one gets fewer than its own seven cores.
  CHECK(threads_with_gpus_near({{0}, {0}, {0}, {1, 2, 3, 4, 5, 6, 7}}) == Threads{1, 1, 1, 5});
  const auto crowded = bind_ranks(with_gpus_near({{0}, {0}, {1, 2, 3, 4, 5, 6, 7}}), 3, {});
  CHECK((*crowded)[2].cpu_reason.ends_with("; fewer threads, because other ranks share cores"));
  CHECK(threads_with_gpus_near(std::vector<std::vector<int>>(12, {0, 1})) == Threads(12, 1));
}

TEST_CASE("all ranks of a host have at most as many threads as it has cores, if they are not more themselves") {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::vector<int>> near(1 + random() % 8);
    for (std::vector<int>& cpus : near) {
      for (int id = 0; id < 8; ++id) {
        if (random() % 3 == 0) cpus.push_back(id);
      }
      if (cpus.empty()) cpus.push_back(static_cast<int>(random() % 8));
    }
    const std::vector<int> threads = threads_with_gpus_near(near);
    CHECK(std::accumulate(threads.begin(), threads.end(), 0) <= 8);
    CHECK(*std::min_element(threads.begin(), threads.end()) >= 1);
  }
}

TEST_CASE("a CPU quota counts as cores, for slots and threads but not for pinning") {
  const test::Sysroot tree;
  tree.write("proc/self/status", "Cpus_allowed_list:\t0-63\n");
  tree.write("proc/self/cgroup", "0::/pod/container\n");
  tree.write("sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
  tree.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  const Topology found = scan_topology(tree.path());
  CHECK(found.cpus.size() == 64);
  CHECK(own_slots(found, {}).count == 4);
  CHECK(own_slots(found, {}).why.find("CPU quota") != std::string::npos);
  for (const BindTo to : {BindTo::kNone, BindTo::kCore, BindTo::kNuma}) {
    const auto bound = bind_ranks(found, 2, {.bind_to = to});
    REQUIRE(bound.ok());
    CHECK((*bound)[1].threads == 2);
    CHECK((*bound)[1].cpu_reason.find("the CPU quota lets all ranks of this host use 4 cores at a time") !=
          std::string::npos);
    if (to == BindTo::kCore) CHECK((*bound)[1].cpus.size() == 32);
  }
  CHECK(bind_ranks(found, 8, {})->front().threads == 1);
  tree.write("sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  CHECK(own_slots(scan_topology(tree.path()), {}).count == 3);
  tree.write("sys/fs/cgroup/pod/cpu.max", "9900000 100000\n");
  const Topology plenty = scan_topology(tree.path());
  CHECK(own_slots(plenty, {}).count == 64);
  CHECK(own_slots(plenty, {}).why == "one for each core; it has no GPUs");
}

TEST_CASE("a topology survives the wire") {
  Topology sliced = big_host();
  sliced.quota = 3;
  sliced.gpus[1].slices = {{.gpu_instance = 7, .compute_instance = 0}};
  sliced.visible_devices = "0";
  net::WireWriter writer;
  fields(writer, sliced);
  net::WireReader reader(writer.view());
  Topology again;
  fields(reader, again);
  CHECK(again == sliced);
  CHECK(reader.finish("topology").ok());
}

}  // namespace
}  // namespace distrun::launcher
