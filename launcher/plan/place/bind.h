// bind_ranks(): the ranks of one host to cores, NUMA nodes and GPUs. Pure; each rank's reason comes with the decision.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/place/gpu_pool.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct Binding {
  std::vector<int> cpus;  // logical CPUs this rank is pinned to; empty: not pinned
  int gpu = -1;           // position in the pool, which is what set_device(local_rank) counts; -1: none
  int gpus = 0;           // how many from there on
  std::string gpu_name;   // what goes into CUDA_VISIBLE_DEVICES for these alone: UUIDs, else numbers
  std::string gpu_model;
  bool own_gpu_only = false;  // in MIG mode a process finds one slice only, so it must be its own
  int threads = 1;            // cores that this rank may count as its own: OMP_NUM_THREADS
  std::string cpu_reason;
  std::string gpu_reason;
};

// The `ranks` of one host. By local rank, where each is a task of MPI's launcher or Slurm, which may have given it GPUs
// of its own, `tasks` has what it sees of them; empty: all see the host's. kInvalidArgument when the options cannot be
// met (--bind-to gpu without a GPU, --gpus-per-rank with too few).
Result<std::vector<Binding>> bind_ranks(const Topology& topology, int ranks, const PlacementOptions& placement,
                                        const std::vector<const Topology*>& tasks = {});

// What --report-bindings says of one rank behind its name: "CPUs 0-3,8-11 (4 threads), GPU 1 NVIDIA H200 GPU-22:
// reasons".
std::string binding_text(const Binding& binding);
std::string gpu_text(const Binding& binding);

}  // namespace distrun::launcher
