// The GPUs, or parts of GPUs, that the ranks of one host may use. They are in the order that a process counts
// them in. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/place/topology.h"

namespace distrun::launcher {

struct PoolEntry {
  std::string name;          // its name in CUDA_VISIBLE_DEVICES: a UUID, or as the user wrote it
  const Gpu* gpu = nullptr;  // the GPU, or the GPU that has the slice; null if unknown
  bool slice = false;        // part of a GPU in MIG mode; a process sees the first one only
};

// The GPUs of an inherited CUDA_VISIBLE_DEVICES, else all GPUs by PCI bus. An entry is a number, the beginning of a
// UUID that no other GPU has, MIG-<uuid> or MIG-GPU-<uuid>/<instance>/<instance>. As in CUDA, the first invalid entry
// ends the list.
std::vector<PoolEntry> gpu_pool(const Topology& topology);

// How many ranks can get their GPUs from the pool without sharing.
int ranks_for(const std::vector<PoolEntry>& pool, const PlacementOptions& placement);

}  // namespace distrun::launcher
