// bind(): the ranks of one host to cores, NUMA nodes and GPUs. Pure; each rank's reason comes with the decision.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/topology.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

enum class BindTo { kAuto, kNone, kCore, kNuma, kGpu };  // kAuto: gpu where there are GPUs, else none
enum class GpuVisibility { kAll, kOne };

struct Binding {
  std::vector<int> cpus;  // logical CPUs this rank is pinned to; empty: not pinned
  int gpu = -1;           // position in the pool, which is what set_device(local_rank) counts; -1: none
  std::string gpu_name;   // what goes into CUDA_VISIBLE_DEVICES for this one GPU: UUID, else number
  std::string gpu_model;
  int threads = 1;  // cores that this rank may count as its own: OMP_NUM_THREADS
  std::string cpu_reason;
  std::string gpu_reason;
};

struct BindRequest {
  int ranks = 1;  // on this host
  BindTo bind_to = BindTo::kAuto;
  std::string visible_devices;  // inherited CUDA_VISIBLE_DEVICES: the pool; unset means all GPUs
  bool visible_devices_set = false;
};

// kInvalidArgument when the request cannot be met (--bind-to gpu without a GPU).
Result<std::vector<Binding>> bind(const Topology& topology, const BindRequest& request);

// The GPUs that ranks may use, in order: those of CUDA_VISIBLE_DEVICES if it is set, else all by PCI bus.
struct PoolEntry {
  std::string name;          // UUID, or the entry as the user wrote it
  const Gpu* gpu = nullptr;  // null when the entry is not among the scanned GPUs (MIG slices)
};
std::vector<PoolEntry> gpu_pool(const Topology& topology, const BindRequest& request);

}  // namespace distrun::launcher
