// bind_ranks() pins the ranks of one host to cores, NUMA nodes and GPUs. Pure; returns each rank's reason with the
// decision.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/place/gpu_pool.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

inline constexpr char kNotPinnedByOption[] = "not pinned, because of --bind-to none";

struct Binding {
  bool known = true;      // false: the host was not asked, and the rest is empty, but what an option says
  std::vector<int> cpus;  // logical CPUs this rank is pinned to; empty: not pinned
  int gpu = -1;           // position in the pool, as in set_device(local_rank); -1: none
  int gpus = 0;           // how many GPUs, from that position on
  std::string gpu_name;   // their value for CUDA_VISIBLE_DEVICES: UUIDs, else numbers
  std::string gpu_model;
  bool own_gpu_only = false;  // in MIG mode a process sees one slice only, so it must be its own
  int threads = 1;            // how many cores it may use: OMP_NUM_THREADS
  std::string cpu_reason;
  std::string gpu_reason;
};

// Binds the `ranks` of one host. If each rank is a task of MPI's launcher or Slurm, it may have its own GPUs. Then
// `tasks` has, by local rank, the topology that the task sees. Empty: all ranks see that of the host. Returns
// kInvalidArgument if the options cannot be met (--bind-to gpu without a GPU, --gpus-per-rank with too few).
Result<std::vector<Binding>> bind_ranks(const Topology& topology, int ranks, const PlacementOptions& placement,
                                        const std::vector<const Topology*>& tasks = {});

// The text of --report-bindings after the rank's name: "CPUs 0-3,8-11 (4 threads), GPU 1 NVIDIA H200 GPU-22: reasons".
std::string binding_text(const Binding& binding);
std::string gpu_text(const Binding& binding);

}  // namespace distrun::launcher
