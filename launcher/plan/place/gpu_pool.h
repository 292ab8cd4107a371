// The GPUs, or parts of GPUs, that the ranks of one host may use, in the order in which a process counts them. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/place/topology.h"

namespace distrun::launcher {

struct PoolEntry {
  std::string name;          // what CUDA_VISIBLE_DEVICES calls it: a UUID, or the entry as the user wrote it
  const Gpu* gpu = nullptr;  // it, or the one it is a part of; null when nothing tells which
  bool slice = false;        // a part of a GPU in MIG mode: of these a process sees the first one only
};

// What an inherited CUDA_VISIBLE_DEVICES names, else all GPUs by PCI bus. An entry is a number, the beginning
// of a UUID that no other GPU has, MIG-<uuid> or MIG-GPU-<uuid>/<instance>/<instance>. As CUDA reads it, the first
// entry that means nothing ends the list.
std::vector<PoolEntry> gpu_pool(const Topology& topology);

// Ranks that can have what each is to have of the pool without sharing.
int ranks_for(const std::vector<PoolEntry>& pool, const PlacementOptions& placement);

}  // namespace distrun::launcher
