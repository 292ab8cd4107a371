// What a host has, as a value: cores, NUMA nodes, GPUs, and what this user may use of them. Read from the system by
// launcher/agent/scan; travels from the agent to the head.
#pragma once

#include <string>
#include <vector>

#include "runtime/net/wire.h"

namespace distrun::launcher {

struct Cpu {
  int id = 0;    // as the kernel numbers logical CPUs
  int core = 0;  // logical CPUs of one core share this number
  int node = 0;  // NUMA node; 0 where the kernel tells none
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

struct Gpu {
  int minor = -1;         // N of /dev/nvidiaN
  std::string bus;        // "0000:3b:00.0"; the order of GPUs is the order of these
  std::string uuid;       // "GPU-...", empty if unknown
  std::string model;      // "NVIDIA H200"
  int node = -1;          // NUMA node, -1 if unknown
  std::vector<int> cpus;  // near it, empty if unknown
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Topology {
  std::vector<Cpu> cpus;  // only those in the affinity mask
  std::vector<Gpu> gpus;  // by bus
  friend bool operator==(const Topology&, const Topology&) = default;
};

int count_cores(const std::vector<Cpu>& cpus);

void write_topology(net::WireWriter& writer, const Topology& topology);
Topology read_topology(net::WireReader& reader);

}  // namespace distrun::launcher
