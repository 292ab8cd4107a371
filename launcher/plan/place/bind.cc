#include "launcher/plan/place/bind.h"

#include <algorithm>
#include <map>
#include <set>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

using Pool = std::vector<PoolEntry>;
using Pools = std::vector<Pool>;  // by local rank
using Bindings = std::vector<Binding>;

std::vector<int> ids_of(const std::vector<Cpu>& cpus) {
  std::vector<int> ids;
  for (const Cpu& cpu : cpus) ids.push_back(cpu.id);
  return ids;
}

// Cores in the order (node, core), each with its logical CPUs.
std::vector<std::vector<Cpu>> cores_of(const std::vector<Cpu>& cpus) {
  std::map<std::pair<int, int>, std::vector<Cpu>> by_core;
  for (const Cpu& cpu : cpus) by_core[{cpu.node, cpu.core}].push_back(cpu);
  std::vector<std::vector<Cpu>> out;
  for (auto& [key, of_core] : by_core) out.push_back(std::move(of_core));
  return out;
}

void bind_none(const Topology& topology, Bindings& out, const std::string& why) {
  const int cores = std::max(1, count_cores(topology.cpus));
  const int ranks = static_cast<int>(out.size());
  for (Binding& binding : out) {
    binding.threads = std::max(1, cores / ranks);
    binding.cpu_reason = why + "; " + counted(static_cast<std::size_t>(cores), "core") + " shared by " +
                         counted(static_cast<std::size_t>(ranks), "rank");
  }
}

// The NUMA nodes of the rank's GPUs. Empty if the kernel does not tell them.
std::set<int> nodes_of(const Pool& pool, const Binding& binding) {
  std::set<int> nodes;
  for (int i = 0; i < binding.gpus; ++i) {
    const Gpu* gpu = pool[static_cast<std::size_t>(binding.gpu + i)].gpu;
    if (gpu != nullptr && gpu->node >= 0) nodes.insert(gpu->node);
  }
  return nodes;
}

std::string nodes_text(const std::set<int>& nodes) {
  return std::string(nodes.size() == 1 ? "NUMA node " : "NUMA nodes ") + ranges({nodes.begin(), nodes.end()});
}

// Ranks that divide one set of cores among themselves.
struct CoreGroup {
  std::vector<std::size_t> ranks;
  std::vector<Cpu> cpus;
  std::string near;  // text about the GPU near these cores, or empty
};

// Groups the ranks by the NUMA nodes of their GPUs, if every group has usable cores. Else one group has all ranks and
// all cores.
std::vector<CoreGroup> groups_of(const Topology& topology, const Pools& pools, const Bindings& ranks) {
  std::map<std::set<int>, CoreGroup> by_nodes;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    by_nodes[nodes_of(pools[rank], ranks[rank])].ranks.push_back(rank);
  }
  std::vector<CoreGroup> out;
  std::set<int> taken;
  bool usable = true;
  for (auto& [nodes, group] : by_nodes) {
    for (const Cpu& cpu : topology.cpus) {
      if (nodes.contains(cpu.node)) group.cpus.push_back(cpu);
    }
    // If two groups share a node, its cores would be given out twice.
    for (const int node : nodes) usable = usable && taken.insert(node).second;
    usable = usable && !group.cpus.empty();
    group.near = " of " + nodes_text(nodes) + ", near its GPU";
    out.push_back(std::move(group));
  }
  if (usable) return out;
  CoreGroup all{.cpus = topology.cpus};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) all.ranks.push_back(rank);
  return {all};
}

void share_out(const CoreGroup& group, Bindings& out) {
  const auto cores = cores_of(group.cpus);
  const std::size_t ranks = group.ranks.size();
  for (std::size_t i = 0; i < ranks; ++i) {
    Binding& binding = out[group.ranks[i]];
    std::size_t first = i * cores.size() / ranks;
    std::size_t last = (i + 1) * cores.size() / ranks;
    if (cores.size() < ranks) {
      first = i % cores.size();
      last = first + 1;
    }
    for (std::size_t core = first; core < last; ++core) {
      for (const Cpu& cpu : cores[core]) binding.cpus.push_back(cpu.id);
    }
    binding.threads = static_cast<int>(last - first);
    binding.cpu_reason =
        "--bind-to core: " + counted(last - first, "core") + " of " + std::to_string(cores.size()) + group.near;
    if (cores.size() < ranks) binding.cpu_reason += ", shared, because there are more ranks than cores";
  }
}

void bind_core(const Topology& topology, const Pools& pools, Bindings& out) {
  for (const CoreGroup& group : groups_of(topology, pools, out)) share_out(group, out);
}

// Ranks that may use the same core divide it among their threads. Their CPUs may also overlap in part.
void share_threads(const Topology& topology, Bindings& out) {
  std::vector<std::set<int>> allowed;
  for (const Binding& binding : out) allowed.emplace_back(binding.cpus.begin(), binding.cpus.end());
  std::vector<double> shares(out.size());
  for (const std::vector<Cpu>& core : cores_of(topology.cpus)) {
    std::vector<std::size_t> users;
    for (std::size_t rank = 0; rank < out.size(); ++rank) {
      const bool uses = allowed[rank].empty() || std::any_of(core.begin(), core.end(), [&](const Cpu& cpu) {
                          return allowed[rank].contains(cpu.id);
                        });
      if (uses) users.push_back(rank);
    }
    for (const std::size_t rank : users) shares[rank] += 1.0 / static_cast<double>(users.size());
  }
  constexpr double kRounding = 1e-6;  // a sum of thirds may be a little less than a whole number
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    out[rank].threads = std::max(1, static_cast<int>(shares[rank] + kRounding));
  }
}

void bind_numa(const Topology& topology, const Pools& pools, Bindings& out) {
  const std::vector<CoreGroup> groups = groups_of(topology, pools, out);
  if (!groups.front().near.empty()) {
    for (const CoreGroup& group : groups) {
      for (const std::size_t rank : group.ranks) {
        out[rank].cpus = ids_of(group.cpus);
        out[rank].cpu_reason = "--bind-to numa: all cores" + group.near;
      }
    }
    return share_threads(topology, out);
  }
  std::map<int, std::vector<Cpu>> nodes;
  for (const Cpu& cpu : topology.cpus) nodes[cpu.node].push_back(cpu);
  std::vector<int> numbers;
  for (const auto& [node, cpus] : nodes) numbers.push_back(node);
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    const std::size_t index = out.size() >= numbers.size() ? rank * numbers.size() / out.size() : rank;
    const int node = numbers[index];
    out[rank].cpus = ids_of(nodes[node]);
    out[rank].cpu_reason = "--bind-to numa: node " + std::to_string(node) + " of " + std::to_string(numbers.size());
  }
  share_threads(topology, out);
}

bool near(const Gpu& gpu, const Cpu& cpu) {
  if (gpu.cpus.empty()) return cpu.node == gpu.node;
  return std::find(gpu.cpus.begin(), gpu.cpus.end(), cpu.id) != gpu.cpus.end();
}

void bind_gpu(const Topology& topology, const Pools& pools, bool automatic, Bindings& out) {
  const std::string option = automatic ? "near its GPU (the default where there are GPUs)" : "--bind-to gpu";
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    Binding& binding = out[rank];
    const Pool& pool = pools[rank];
    const std::set<int> nodes = nodes_of(pool, binding);
    if (nodes.empty()) {
      binding.cpu_reason =
          option + (binding.gpu < 0 ? ": not pinned, because its task has no GPU"
                                    : ": not pinned, because the kernel does not say which cores are near "
                                      "GPU " +
                                          binding.gpu_name);
      continue;
    }
    for (const Cpu& cpu : topology.cpus) {
      for (int i = 0; i < binding.gpus; ++i) {
        const Gpu* gpu = pool[static_cast<std::size_t>(binding.gpu + i)].gpu;
        if (gpu == nullptr || gpu->node < 0 || !near(*gpu, cpu)) continue;
        binding.cpus.push_back(cpu.id);
        break;
      }
    }
    binding.cpu_reason = option + ": " + nodes_text(nodes);
    if (binding.cpus.empty()) binding.cpu_reason += ", but this process may use none of its cores, so not pinned";
  }
  share_threads(topology, out);
}

// A rank has at least one thread, also where several ranks share one core. Then ranks with more threads get fewer, so
// that all ranks together have no more threads than the host has cores.
void limit_to_cores(const Topology& topology, Bindings& out) {
  const int cores = count_cores(topology.cpus);
  const auto total = [&out](int most) {
    int sum = 0;
    for (const Binding& binding : out) sum += std::min(binding.threads, most);
    return sum;
  };
  int most = 0;
  for (const Binding& binding : out) most = std::max(most, binding.threads);
  if (cores == 0 || total(most) <= cores) return;
  while (most > 1 && total(most) > cores) --most;
  for (Binding& binding : out) {
    if (binding.threads <= most) continue;
    binding.threads = most;
    binding.cpu_reason += "; fewer threads, because other ranks share cores";
  }
}

// The kernel would only stop threads beyond the quota. The pinning stays as it is without a quota.
void limit_threads(const Topology& topology, Bindings& out) {
  if (topology.quota <= 0) return;
  const int each = std::max(1, topology.quota / static_cast<int>(out.size()));
  for (Binding& binding : out) {
    if (binding.threads <= each) continue;
    binding.threads = each;
    binding.cpu_reason += "; the CPU quota lets all ranks of this host use " +
                          counted(static_cast<std::size_t>(topology.quota), "core") + " at a time";
  }
}

bool has_slices(const Pool& pool) {
  return std::any_of(pool.begin(), pool.end(), [](const PoolEntry& entry) { return entry.slice; });
}

// Ranks that choose from the same GPUs: all ranks of a host, or tasks that were given the same GPUs.
struct Share {
  const Topology* topology = nullptr;
  const Pool* pool = nullptr;
  std::vector<std::size_t> ranks;
};

using Tasks = std::vector<const Topology*>;

const Topology& seen_by(const Topology& topology, const Tasks& tasks, std::size_t rank) {
  return tasks.empty() ? topology : *tasks[rank];
}

std::vector<Share> shares_of(const Topology& topology, const Tasks& tasks, const Pools& pools) {
  std::map<std::vector<std::string>, Share> by_gpus;  // a GPU that a task sees alone has number 0 there
  for (std::size_t rank = 0; rank < pools.size(); ++rank) {
    std::vector<std::string> gpus;
    for (const PoolEntry& entry : pools[rank]) {
      gpus.push_back(entry.slice || entry.gpu == nullptr ? entry.name : entry.gpu->bus);
    }
    Share& share = by_gpus[gpus];
    if (share.ranks.empty()) share = {.topology = &seen_by(topology, tasks, rank), .pool = &pools[rank], .ranks = {}};
    share.ranks.push_back(rank);
  }
  std::vector<Share> out;
  for (auto& [gpus, share] : by_gpus) out.push_back(std::move(share));
  return out;
}

Status check_gpus(const Share& share, const PlacementOptions& placement, bool tasks_own) {
  const Pool& pool = *share.pool;
  const std::string where = share.topology->visible_devices ? "CUDA_VISIBLE_DEVICES=" + *share.topology->visible_devices
                                                            : "see /proc/driver/nvidia/gpus";
  const std::string who = tasks_own ? "a rank's task" : "this host";
  if (placement.bind_to == BindTo::kGpu && pool.empty()) {
    return {Errc::kInvalidArgument,
            "--bind-to gpu: " + who + " shows no GPU (" + where + "). Use --bind-to core, numa or none"};
  }
  if (placement.gpus_per_rank == 0) return {};
  const std::string option = "--gpus-per-rank " + std::to_string(placement.gpus_per_rank);
  if (has_slices(pool) && placement.gpus_per_rank > 1) {
    return {Errc::kInvalidArgument, option +
                                        " is not possible: the GPUs are in MIG mode, and a process can use only one "
                                        "slice. Use --gpus-per-rank 1"};
  }
  const int fit = ranks_for(pool, placement);
  const std::size_t ranks = share.ranks.size();
  if (static_cast<std::size_t>(fit) >= ranks) return {};
  return {Errc::kInvalidArgument,
          option + ": " + counted(ranks, "rank") + (ranks == 1 ? " needs " : " need ") +
              counted(ranks * static_cast<std::size_t>(placement.gpus_per_rank), "GPU") + " and " + who + " has " +
              std::to_string(pool.size()) + " (" + where + "). " +
              (fit > 0 ? "Place at most " + counted(static_cast<std::size_t>(fit), "rank") + " there"
                       : std::string("Use fewer GPUs per rank"))};
}

void choose_gpus(const Share& share, const PlacementOptions& placement, bool tasks_own, Bindings& out) {
  const Pool& pool = *share.pool;
  const std::size_t each = static_cast<std::size_t>(std::max(1, placement.gpus_per_rank));
  for (std::size_t number = 0; number < share.ranks.size(); ++number) {
    Binding& binding = out[share.ranks[number]];
    if (pool.empty()) {
      binding.gpu_reason = tasks_own ? "its task has no GPU" : "this host shows no GPU";
      continue;
    }
    const std::size_t index = number * each % pool.size();
    const PoolEntry& first = pool[index];
    std::vector<std::string> names;
    for (std::size_t i = index; i < index + each; ++i) names.push_back(pool[i].name);
    binding.gpu = static_cast<int>(index);
    binding.gpus = static_cast<int>(each);
    binding.gpu_name = join(names, ",");
    binding.gpu_model = first.gpu != nullptr ? first.gpu->model : "";
    binding.own_gpu_only = has_slices(pool);
    const std::string numbers = each == 1 ? "number " + std::to_string(index)
                                          : "numbers " + std::to_string(index) + "-" + std::to_string(index + each - 1);
    binding.gpu_reason = numbers + " of " + counted(pool.size(), first.slice ? "MIG slice" : "GPU") +
                         (tasks_own ? " of its task" : ", by local rank");
    if (share.ranks.size() > pool.size()) {
      binding.gpu_reason += "; shared, because there are more ranks than GPUs";
    }
  }
}

}  // namespace

std::string gpu_text(const Binding& binding) {
  if (binding.gpu < 0) return "none";
  const std::string first = std::to_string(binding.gpu);
  std::string out = binding.gpus == 1 ? first : first + "-" + std::to_string(binding.gpu + binding.gpus - 1);
  if (!binding.gpu_model.empty()) out += " " + binding.gpu_model;
  if (binding.gpu_name != out) out += " " + binding.gpu_name;
  return out;
}

std::string binding_text(const Binding& binding) {
  return (binding.cpus.empty() ? "not pinned" : "CPUs " + ranges(binding.cpus)) + " (" +
         counted(static_cast<std::size_t>(binding.threads), "thread") + "), GPU " + gpu_text(binding) + "; " +
         binding.cpu_reason;
}

Result<std::vector<Binding>> bind_ranks(const Topology& topology, int ranks, const PlacementOptions& placement,
                                        const Tasks& tasks) {
  DISTRUN_CHECK(ranks > 0, "a host without ranks is not bound");
  Bindings out(static_cast<std::size_t>(ranks));
  Pools pools;
  for (std::size_t rank = 0; rank < out.size(); ++rank) pools.push_back(gpu_pool(seen_by(topology, tasks, rank)));
  const std::vector<Share> shares = shares_of(topology, tasks, pools);
  const bool tasks_own = shares.size() > 1;
  for (const Share& share : shares) DISTRUN_RETURN_IF_ERROR(check_gpus(share, placement, tasks_own));
  for (const Share& share : shares) choose_gpus(share, placement, tasks_own, out);
  const bool automatic = placement.bind_to == BindTo::kAuto;
  const bool none = std::all_of(pools.begin(), pools.end(), [](const Pool& pool) { return pool.empty(); });
  const BindTo wanted = automatic ? (none ? BindTo::kNone : BindTo::kGpu) : placement.bind_to;
  if (topology.cpus.empty() || wanted == BindTo::kNone) {
    const char* why = topology.cpus.empty() ? "not pinned: the kernel gives no facts about the cores"
                      : automatic           ? "not pinned (the default without GPUs)"
                                            : kNotPinnedByOption;
    bind_none(topology, out, why);
  } else if (wanted == BindTo::kCore) {
    bind_core(topology, pools, out);
  } else if (wanted == BindTo::kNuma) {
    bind_numa(topology, pools, out);
  } else {
    bind_gpu(topology, pools, automatic, out);
  }
  limit_to_cores(topology, out);
  limit_threads(topology, out);
  return out;
}

}  // namespace distrun::launcher
