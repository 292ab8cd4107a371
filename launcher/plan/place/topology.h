// The cores, NUMA nodes and GPUs of a host, and how much of them this user may use. launcher/agent/preflight/scan reads
// them from the system, and the agent sends them to the head.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/net/bytes/wire.h"

namespace distrun::launcher {

struct Cpu {
  int id = 0;    // the kernel's number of the logical CPU
  int core = 0;  // logical CPUs of one core share this number
  int node = 0;  // NUMA node; 0 if the kernel does not tell
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
  std::string bus;            // "0000:3b:00.0"; GPUs are ordered by this
  std::string uuid;           // "GPU-...", empty if unknown
  std::string model;          // "NVIDIA H200"
  int node = -1;              // NUMA node, -1 if unknown
  std::vector<int> cpus;      // CPUs near it; empty if unknown
  std::vector<Slice> slices;  // usable slices in MIG mode; empty: the GPU is used whole
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Topology {
  std::vector<Cpu> cpus;                       // only those in the affinity mask
  int quota = 0;                               // CPU time for all processes there, in CPUs, rounded up; 0: no limit
  std::vector<Gpu> gpus;                       // by bus
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES that ranks there would inherit
  friend bool operator==(const Topology&, const Topology&) = default;
};

int count_cores(const std::vector<Cpu>& cpus);
// How many threads can run there at once: one per core within the quota, and at least one.
int usable_cores(const Topology& topology);

template <class V>
void fields(V& v, net::Ref<V, Topology> topology);

}  // namespace distrun::launcher
