// What a host has, as a value: cores, NUMA nodes, GPUs, and what this user may use of them. Read from the system by
// launcher/agent/preflight/scan; travels from the agent to the head.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/net/bytes/wire.h"

namespace distrun::launcher {

struct Cpu {
  int id = 0;    // as the kernel numbers logical CPUs
  int core = 0;  // logical CPUs of one core share this number
  int node = 0;  // NUMA node; 0 where the kernel tells none
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

// A part of a GPU in MIG mode, by the numbers of its GPU instance and compute instance.
struct Slice {
  int gpu_instance = 0;
  int compute_instance = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

struct Gpu {
  int minor = -1;             // N of /dev/nvidiaN
  std::string bus;            // "0000:3b:00.0"; the order of GPUs is the order of these
  std::string uuid;           // "GPU-...", empty if unknown
  std::string model;          // "NVIDIA H200"
  int node = -1;              // NUMA node, -1 if unknown
  std::vector<int> cpus;      // near it, empty if unknown
  std::vector<Slice> slices;  // in MIG mode those that exist and may be used; empty: it is used whole
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Topology {
  std::vector<Cpu> cpus;                       // only those in the affinity mask
  int quota = 0;                               // so many CPUs' time for all processes there, rounded up; 0: no limit
  std::vector<Gpu> gpus;                       // by bus
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES as ranks there would inherit it
  friend bool operator==(const Topology&, const Topology&) = default;
};

int count_cores(const std::vector<Cpu>& cpus);
// How many threads can run there at once: one for each core, and at least one, within the quota.
int usable_cores(const Topology& topology);

template <class V>
void fields(V& v, net::Ref<V, Topology> topology);

}  // namespace distrun::launcher
