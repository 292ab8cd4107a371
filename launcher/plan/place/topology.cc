#include "launcher/plan/place/topology.h"

#include <algorithm>
#include <set>

namespace distrun::launcher {
namespace {
constexpr std::size_t kMaxCpus = 65536;
constexpr std::size_t kMaxGpus = 1024;
constexpr std::size_t kMaxSlices = 256;
constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxList = 128 * 1024;
}  // namespace

int count_cores(const std::vector<Cpu>& cpus) {
  std::set<int> cores;
  for (const Cpu& cpu : cpus) cores.insert(cpu.core);
  return static_cast<int>(cores.size());
}

int usable_cores(const Topology& topology) {
  const int cores = std::max(1, count_cores(topology.cpus));
  return topology.quota > 0 ? std::min(cores, topology.quota) : cores;
}

template <class V>
void fields(V& v, net::Ref<V, Topology> topology) {
  v.list(topology.cpus, kMaxCpus, [](auto& w, auto& cpu) { w(cpu.id, cpu.core, cpu.node); });
  v(topology.quota);
  v.list(topology.gpus, kMaxGpus, [](auto& w, auto& gpu) {
    w(gpu.minor).text(gpu.bus, kMaxName).text(gpu.uuid, kMaxName).text(gpu.model, kMaxName);
    w(gpu.node).numbers(gpu.cpus, kMaxCpus);
    w.list(gpu.slices, kMaxSlices, [](auto& u, auto& slice) { u(slice.gpu_instance, slice.compute_instance); });
  });
  bool listed = topology.visible_devices.has_value();
  std::string visible_devices = topology.visible_devices.value_or("");
  v(listed).text(visible_devices, kMaxList);
  if constexpr (V::kReads) topology.visible_devices = listed ? std::optional(visible_devices) : std::nullopt;
}

template void fields(net::WireWriter& v, const Topology& topology);
template void fields(net::WireReader& v, Topology& topology);

}  // namespace distrun::launcher
