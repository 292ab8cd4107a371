#include "launcher/plan/place/gpu_pool.h"

#include <algorithm>
#include <string_view>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

const Gpu* by_number(const Topology& topology, std::string_view item) {
  const auto number = parse_number(item, 0, static_cast<int>(topology.gpus.size()) - 1);
  return number ? &topology.gpus[static_cast<std::size_t>(*number)] : nullptr;
}

const Gpu* by_uuid(const Topology& topology, std::string_view beginning) {
  const Gpu* found = nullptr;
  for (const Gpu& gpu : topology.gpus) {
    if (!gpu.uuid.starts_with(beginning)) continue;
    if (found != nullptr) return nullptr;
    found = &gpu;
  }
  return found;
}

// The kernel does not tell which GPU has the slice with this UUID. If all GPUs are near the same cores, any of them
// will do.
const Gpu* whole_of(const Topology& topology, std::string_view slice) {
  slice.remove_prefix(std::string_view("MIG-").size());
  if (slice.starts_with("GPU-")) return by_uuid(topology, slice.substr(0, slice.find('/')));
  const bool alike =
      !topology.gpus.empty() && std::all_of(topology.gpus.begin(), topology.gpus.end(),
                                            [&](const Gpu& gpu) { return gpu.node == topology.gpus.front().node; });
  return alike ? &topology.gpus.front() : nullptr;
}

std::vector<PoolEntry> everything(const Topology& topology) {
  std::vector<PoolEntry> pool;
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    const Gpu& gpu = topology.gpus[i];
    if (gpu.slices.empty()) pool.push_back({.name = gpu.uuid.empty() ? std::to_string(i) : gpu.uuid, .gpu = &gpu});
    for (const Slice& slice : gpu.slices) {
      pool.push_back({.name = "MIG-" + gpu.uuid + "/" + std::to_string(slice.gpu_instance) + "/" +
                              std::to_string(slice.compute_instance),
                      .gpu = &gpu,
                      .slice = true});
    }
  }
  return pool;
}

}  // namespace

std::vector<PoolEntry> gpu_pool(const Topology& topology) {
  if (!topology.visible_devices) return everything(topology);
  std::vector<PoolEntry> pool;
  std::string_view rest = *topology.visible_devices;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = trim(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const bool slice = item.starts_with("MIG-");
    const bool uuid = item.starts_with("GPU-");
    const Gpu* found = slice ? whole_of(topology, item) : uuid ? by_uuid(topology, item) : by_number(topology, item);
    if (found == nullptr && !slice) break;
    pool.push_back({.name = std::string(item), .gpu = found, .slice = slice});
  }
  return pool;
}

int ranks_for(const std::vector<PoolEntry>& pool, const PlacementOptions& placement) {
  return static_cast<int>(pool.size()) / std::max(1, placement.gpus_per_rank);
}

}  // namespace distrun::launcher
