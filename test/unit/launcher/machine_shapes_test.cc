// Copied system files of real machine types: the results of the scan, and the placement of ranks.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <map>

#include "launcher/agent/preflight/scan.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/place/bind.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

// `nodes` equal parts of `cores` cores with two hardware threads each. Linux numbers the first threads of all cores
// first.
struct Shape {
  int cores = 0;
  int nodes = 0;                                  // 0: a kernel without NUMA
  std::vector<std::pair<std::string, int>> gpus;  // bus and node
};

std::vector<int> cpus_of_node(const Shape& shape, int node) {
  const int each = shape.cores / std::max(1, shape.nodes);
  std::vector<int> out;
  for (int thread = 0; thread < 2; ++thread) {
    for (int core = node * each; core < (node + 1) * each; ++core) out.push_back(thread * shape.cores + core);
  }
  return out;
}

void write_tree(const test::Sysroot& tree, const Shape& shape) {
  tree.write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-" + std::to_string(2 * shape.cores - 1) + "\n");
  for (int id = 0; id < 2 * shape.cores; ++id) {
    tree.write("sys/devices/system/cpu/cpu" + std::to_string(id) + "/topology/thread_siblings_list",
               std::to_string(id % shape.cores) + "," + std::to_string(id % shape.cores + shape.cores) + "\n");
  }
  for (int node = 0; node < shape.nodes; ++node) {
    tree.write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
               ranges(cpus_of_node(shape, node)) + "\n");
  }
  for (std::size_t i = 0; i < shape.gpus.size(); ++i) {
    const auto& [bus, node] = shape.gpus[i];
    const std::string minor = std::to_string(i);
    tree.write("proc/driver/nvidia/gpus/" + bus + "/information",
               "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 1\nGPU UUID: \t GPU-" + minor + "\nBus Type: \t PCIe\n" +
                   "Device Minor: \t " + minor + "\n");
    tree.write("dev/nvidia" + minor, "");
    tree.write("sys/bus/pci/devices/" + bus + "/numa_node", std::to_string(node) + "\n");
    tree.write("sys/bus/pci/devices/" + bus + "/local_cpulist", ranges(cpus_of_node(shape, std::max(0, node))) + "\n");
  }
}

const Shape kTwoNodes{.cores = 112,
                      .nodes = 2,
                      .gpus = {{"0000:1b:00.0", 0},
                               {"0000:43:00.0", 0},
                               {"0000:52:00.0", 0},
                               {"0000:61:00.0", 0},
                               {"0000:9d:00.0", 1},
                               {"0000:c3:00.0", 1},
                               {"0000:d1:00.0", 1},
                               {"0000:df:00.0", 1}}};
// On such boards the nodes do not ascend with the bus number.
const Shape kFourNodes{.cores = 128,
                       .nodes = 4,
                       .gpus = {{"0000:07:00.0", 1},
                                {"0000:0f:00.0", 1},
                                {"0000:47:00.0", 0},
                                {"0000:4e:00.0", 0},
                                {"0000:87:00.0", 3},
                                {"0000:90:00.0", 3},
                                {"0000:b7:00.0", 2},
                                {"0000:bd:00.0", 2}}};

std::vector<Binding> bound(const Shape& shape, int ranks, const PlacementOptions& placement) {
  const test::Sysroot tree;
  write_tree(tree, shape);
  const auto out = bind_ranks(scan_topology(tree.path()), ranks, placement);
  REQUIRE(out.ok());
  return *out;
}

void check_near(const Shape& shape, const std::vector<Binding>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CHECK(ranks[rank].gpu_name == "GPU-" + std::to_string(rank));
    CHECK(ranges(ranks[rank].cpus) == ranges(cpus_of_node(shape, shape.gpus[rank].second)));
  }
}

TEST_CASE("8 GPUs on two NUMA nodes") {
  const auto ranks = bound(kTwoNodes, 8, {});
  check_near(kTwoNodes, ranks);
  CHECK(ranks[7].threads == 14);
  CHECK(ranges(ranks[0].cpus) == "0-55,112-167");
}

TEST_CASE("8 GPUs on four NUMA nodes, in another order than theirs") {
  for (const BindTo to : {BindTo::kAuto, BindTo::kGpu, BindTo::kNuma}) {
    const auto ranks = bound(kFourNodes, 8, {.bind_to = to});
    check_near(kFourNodes, ranks);
    CHECK(ranks[7].threads == 16);
  }
  const auto cores = bound(kFourNodes, 8, {.bind_to = BindTo::kCore});
  std::map<int, int> users;
  for (std::size_t rank = 0; rank < cores.size(); ++rank) {
    CHECK(cores[rank].threads == 16);
    const int first = kFourNodes.gpus[rank].second * 32;
    for (const int cpu : cores[rank].cpus) {
      CHECK((cpu % 128 >= first && cpu % 128 < first + 32));
      CHECK(++users[cpu] == 1);
    }
  }
  const auto pairs = bound(kFourNodes, 4, {.gpus_per_rank = 2});
  CHECK(pairs[1].gpu_name == "GPU-2,GPU-3");
  CHECK(ranges(pairs[1].cpus) == "0-31,128-159");
  const auto halves = bound(kFourNodes, 2, {.gpus_per_rank = 4});
  CHECK(ranges(halves[0].cpus) == "0-63,128-191");
  CHECK(halves[0].threads == 64);
}

TEST_CASE("an allocation of some cores is never left") {
  const test::Sysroot tree;
  write_tree(tree, kTwoNodes);
  tree.write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t50-59,162-171\n");
  for (const BindTo to : {BindTo::kAuto, BindTo::kCore, BindTo::kNuma, BindTo::kGpu}) {
    const auto ranks = bind_ranks(scan_topology(tree.path()), 8, {.bind_to = to});
    REQUIRE(ranks.ok());
    for (const Binding& rank : *ranks) {
      CHECK_FALSE(rank.cpus.empty());
      for (const int cpu : rank.cpus) CHECK((cpu % 112 >= 50 && cpu % 112 < 60));
    }
    CHECK((*ranks)[7].cpus.back() % 112 == 59);
  }
}

TEST_CASE("a machine without NUMA") {
  const Shape shape{.cores = 16, .nodes = 0, .gpus = {{"0000:01:00.0", -1}, {"0000:02:00.0", -1}}};
  const auto ranks = bound(shape, 2, {});
  CHECK(ranks[1].cpus.empty());
  CHECK(ranks[1].threads == 8);
  CHECK(ranks[1].cpu_reason.find("the kernel does not say") != std::string::npos);
  const auto cores = bound(shape, 2, {.bind_to = BindTo::kCore});
  CHECK(ranges(cores[1].cpus) == "8-15,24-31");
}

TEST_CASE("a GPU in MIG mode is a pool of its slices, beside one that is used whole") {
  const test::Sysroot tree;
  write_tree(tree, {.cores = 8, .nodes = 2, .gpus = {{"0000:3b:00.0", 0}, {"0000:af:00.0", 1}}});
  const std::string mig = "proc/driver/nvidia/capabilities/gpu1/mig/";
  for (const auto& [instance, minor] : std::map<std::string, int>{
           {"gi2", 21}, {"gi2/ci0", 22}, {"gi10", 91}, {"gi10/ci0", 92}, {"gi1", 12}, {"gi1/ci0", 13}}) {
    tree.write(mig + instance + "/access",
               "DeviceFileMinor: " + std::to_string(minor) + "\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
    // Slice gi1 belongs to another container.
    if (minor > 20) tree.write("dev/nvidia-caps/nvidia-cap" + std::to_string(minor), "");
  }
  tree.write("proc/driver/nvidia/capabilities/gpu0/mig/config", "DeviceFileMinor: 1\n");
  const auto ranks = bind_ranks(scan_topology(tree.path()), 3, {});
  REQUIRE(ranks.ok());
  CHECK((*ranks)[0].gpu_name == "GPU-0");
  CHECK((*ranks)[0].own_gpu_only);
  CHECK((*ranks)[1].gpu_name == "MIG-GPU-1/2/0");
  CHECK((*ranks)[2].gpu_name == "MIG-GPU-1/10/0");
  CHECK((*ranks)[2].own_gpu_only);
  CHECK(ranges((*ranks)[2].cpus) == "4-7,12-15");
  CHECK((*ranks)[2].threads == 2);
}

}  // namespace
}  // namespace distrun::launcher
