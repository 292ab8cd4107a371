// launcher/plan/place/gpu_pool.h: a user's CUDA_VISIBLE_DEVICES.
#include "launcher/plan/place/bind.h"
#include "test/fuzz/hosts.h"

namespace distrun::fuzz {

int devices(const std::uint8_t* data, std::size_t size) {
  launcher::Topology host;
  for (int id = 0; id < 4; ++id) host.cpus.push_back({.id = id, .core = id, .node = id / 2});
  host.gpus = {{.bus = "0", .uuid = "GPU-ab", .node = 0}, {.bus = "1", .uuid = "GPU-ac", .node = 1}, {.bus = "2"}};
  host.visible_devices = std::string(reinterpret_cast<const char*>(data), size);
  const auto pool = launcher::gpu_pool(host);
  for (const launcher::PoolEntry& entry : pool) {
    require(!entry.name.empty() && entry.name.find(',') == std::string::npos, "an entry is one word of the list");
    require(entry.gpu != nullptr || entry.slice, "a whole GPU is one of the host's");
  }
  const auto ranks = launcher::bind_ranks(host, 2, {});
  require(ranks.ok(), "any list can be shared out");
  for (const launcher::Binding& rank : *ranks) {
    require((rank.gpu < 0) == pool.empty(), "a rank has a GPU if there is one");
    for (const int cpu : rank.cpus) require(cpu >= 0 && cpu < 4, "cores are the host's");
  }
  return 0;
}

std::vector<Bytes> devices_seeds() {
  std::vector<Bytes> seeds;
  for (const char* text :
       {"0,1", "2, 0", "GPU-ac,GPU-a", "-1", "NoDevFiles", "MIG-GPU-ab/7/0,MIG-0a1b", "MIG-", "0,,1"}) {
    seeds.push_back(bytes_of(text));
  }
  return seeds;
}

}  // namespace distrun::fuzz
