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

void write_topology(net::WireWriter& writer, const Topology& topology) {
  writer.list(topology.cpus, [](net::WireWriter& w, const Cpu& cpu) { w.i32(cpu.id).i32(cpu.core).i32(cpu.node); });
  writer.i32(topology.quota);
  writer.list(topology.gpus, [](net::WireWriter& w, const Gpu& gpu) {
    w.i32(gpu.minor).string(gpu.bus).string(gpu.uuid).string(gpu.model).i32(gpu.node).i32s(gpu.cpus);
    w.list(gpu.slices,
           [](net::WireWriter& v, const Slice& slice) { v.i32(slice.gpu_instance).i32(slice.compute_instance); });
  });
  writer.boolean(topology.visible_devices.has_value()).string(topology.visible_devices.value_or(""));
}

Topology read_topology(net::WireReader& reader) {
  Topology out;
  out.cpus = reader.list<Cpu>(kMaxCpus, 12, [](net::WireReader& r) {
    Cpu cpu;
    cpu.id = r.i32();
    cpu.core = r.i32();
    cpu.node = r.i32();
    return cpu;
  });
  out.quota = reader.i32();
  out.gpus = reader.list<Gpu>(kMaxGpus, 28, [](net::WireReader& r) {
    Gpu gpu;
    gpu.minor = r.i32();
    gpu.bus = r.string(kMaxName);
    gpu.uuid = r.string(kMaxName);
    gpu.model = r.string(kMaxName);
    gpu.node = r.i32();
    gpu.cpus = r.i32s(kMaxCpus);
    gpu.slices = r.list<Slice>(kMaxSlices, 8, [](net::WireReader& v) {
      Slice slice;
      slice.gpu_instance = v.i32();
      slice.compute_instance = v.i32();
      return slice;
    });
    return gpu;
  });
  const bool listed = reader.boolean();
  std::string visible_devices = reader.string(kMaxList);
  if (listed) out.visible_devices = std::move(visible_devices);
  return out;
}

}  // namespace distrun::launcher
