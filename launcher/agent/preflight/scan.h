// Reads what this host has: allowed CPUs, their cores and NUMA nodes, and NVIDIA GPUs, from /proc and /sys only.
#pragma once

#include <string>

#include "launcher/plan/place/topology.h"

namespace distrun::launcher {

// Equal for all processes of one machine and different between machines. Containers are treated as machines unless they
// share network namespace, process namespace and host name.
std::string machine_identity();

// `sysroot` is "/" or a copied tree with the same paths below it.
Topology scan_topology(const std::string& sysroot);

}  // namespace distrun::launcher
