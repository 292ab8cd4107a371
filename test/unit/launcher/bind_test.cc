#include "launcher/plan/bind.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "launcher/agent/scan.h"
#include "test/unit/launcher/sysroot.h"

namespace distrun::launcher {
namespace {

// Two nodes of four cores with two hardware threads each, and a GPU near each node.
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
  const auto bound = bind(without_gpus(), {.ranks = 4});
  REQUIRE(bound.ok());
  for (const Binding& binding : *bound) {
    CHECK(binding.cpus.empty());
    CHECK(binding.threads == 2);
    CHECK(binding.gpu == -1);
  }
  const auto crowded = bind(without_gpus(), {.ranks = 100});
  REQUIRE(crowded.ok());
  CHECK(crowded->front().threads == 1);
}

TEST_CASE("cores are shared out whole, with all their hardware threads") {
  const auto bound = bind(without_gpus(), {.ranks = 3, .bind_to = BindTo::kCore});
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
  const auto bound = bind(without_gpus(), {.ranks = 9, .bind_to = BindTo::kCore});
  REQUIRE(bound.ok());
  CHECK((*bound)[8].cpus == (*bound)[0].cpus);
  CHECK((*bound)[8].cpu_reason.find("shared") != std::string::npos);
}

TEST_CASE("numa spreads ranks over nodes and threads over a node's cores") {
  const auto bound = bind(without_gpus(), {.ranks = 4, .bind_to = BindTo::kNuma});
  REQUIRE(bound.ok());
  CHECK((*bound)[1].cpus == (*bound)[0].cpus);
  CHECK((*bound)[2].cpus != (*bound)[0].cpus);
  CHECK((*bound)[0].threads == 2);
}

TEST_CASE("with GPUs each rank is pinned near its own") {
  const auto bound = bind(big_host(), {.ranks = 2});
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
    const auto bound = bind(small, {.ranks = 2, .bind_to = to});
    REQUIRE(bound.ok());
    for (const Binding& binding : *bound) {
      for (const int cpu : binding.cpus) CHECK((cpu == 2 || cpu == 3));
    }
  }
  const auto bound = bind(small, {.ranks = 2, .bind_to = BindTo::kGpu});
  CHECK((*bound)[1].cpus.empty());  // none of its GPU's cores is allowed
  CHECK((*bound)[1].cpu_reason.find("none of its cores") != std::string::npos);
}

TEST_CASE("CUDA_VISIBLE_DEVICES is the pool, by number or UUID") {
  const auto by_number = bind(big_host(), {.ranks = 1, .visible_devices = "1", .visible_devices_set = true});
  REQUIRE(by_number.ok());
  CHECK((*by_number)[0].gpu_name == "1");
  CHECK((*by_number)[0].cpus.front() == 4);
  const auto by_uuid =
      bind(big_host(), {.ranks = 2, .visible_devices = "GPU-bb,GPU-aaaa", .visible_devices_set = true});
  REQUIRE(by_uuid.ok());
  CHECK((*by_uuid)[0].gpu_name == "GPU-bb");
  CHECK((*by_uuid)[0].cpus.front() == 4);
  const auto none = bind(big_host(), {.ranks = 1, .visible_devices = "", .visible_devices_set = true});
  REQUIRE(none.ok());
  CHECK((*none)[0].gpu == -1);
  // As CUDA reads it: what follows an entry that does not exist is not used.
  CHECK(gpu_pool(big_host(), {.visible_devices = "0,7,1", .visible_devices_set = true}).size() == 1);
}

TEST_CASE("more ranks than GPUs share them and say so") {
  const auto bound = bind(big_host(), {.ranks = 3});
  REQUIRE(bound.ok());
  CHECK((*bound)[2].gpu == 0);
  CHECK((*bound)[2].gpu_reason.find("shared") != std::string::npos);
  CHECK((*bound)[2].threads == 2);
}

TEST_CASE("--bind-to gpu without a GPU is an error that says so") {
  const auto bound = bind(without_gpus(), {.ranks = 1, .bind_to = BindTo::kGpu});
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
  REQUIRE(found.gpus.size() == 2);  // the third has no device file here: it belongs to another container
  CHECK(found.gpus[0].uuid == "GPU-11");
  CHECK(found.gpus[0].node == -1);
  CHECK(found.gpus[1].node == 1);
  CHECK(found.gpus[1].cpus == std::vector<int>{4, 5, 6, 7});
}

TEST_CASE("a topology survives the wire") {
  net::WireWriter writer;
  write_topology(writer, big_host());
  net::WireReader reader(writer.view());
  CHECK(read_topology(reader) == big_host());
  CHECK(reader.finish("topology").ok());
}

}  // namespace
}  // namespace distrun::launcher
