#include "launcher/plan/bind.h"

#include <algorithm>
#include <map>
#include <set>

#include "launcher/plan/text.h"

namespace distrun::launcher {
namespace {

std::vector<int> ids_of(const std::vector<Cpu>& cpus) {
  std::vector<int> ids;
  for (const Cpu& cpu : cpus) ids.push_back(cpu.id);
  return ids;
}

// Cores in the order (node, core), each with its logical CPUs.
std::vector<std::vector<Cpu>> cores_of(const Topology& topology) {
  std::map<std::pair<int, int>, std::vector<Cpu>> by_core;
  for (const Cpu& cpu : topology.cpus) by_core[{cpu.node, cpu.core}].push_back(cpu);
  std::vector<std::vector<Cpu>> out;
  for (auto& [key, cpus] : by_core) out.push_back(std::move(cpus));
  return out;
}

void bind_none(const Topology& topology, std::vector<Binding>& out, const std::string& why) {
  const int cores = std::max(1, count_cores(topology.cpus));
  const int ranks = static_cast<int>(out.size());
  for (Binding& binding : out) {
    binding.threads = std::max(1, cores / ranks);
    binding.cpu_reason = why + "; " + counted(static_cast<std::size_t>(cores), "core") + " shared by " +
                         counted(static_cast<std::size_t>(ranks), "rank");
  }
}

void bind_core(const Topology& topology, std::vector<Binding>& out) {
  const auto cores = cores_of(topology);
  const std::size_t ranks = out.size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Binding& binding = out[rank];
    std::size_t first = rank * cores.size() / ranks;
    std::size_t last = (rank + 1) * cores.size() / ranks;
    if (cores.size() < ranks) {
      first = rank % cores.size();
      last = first + 1;
    }
    for (std::size_t core = first; core < last; ++core) {
      for (const Cpu& cpu : cores[core]) binding.cpus.push_back(cpu.id);
    }
    binding.threads = static_cast<int>(last - first);
    binding.cpu_reason = "--bind-to core: " + counted(last - first, "core") + " of " + std::to_string(cores.size());
    if (cores.size() < ranks) binding.cpu_reason += ", shared, because there are more ranks than cores";
  }
}

// Ranks that got the same CPUs share their cores as threads.
void share_threads(const Topology& topology, std::vector<Binding>& out) {
  std::map<std::vector<int>, int> users;
  for (const Binding& binding : out) ++users[binding.cpus];
  for (Binding& binding : out) {
    std::vector<Cpu> mine;
    for (const Cpu& cpu : topology.cpus) {
      const bool bound = std::find(binding.cpus.begin(), binding.cpus.end(), cpu.id) != binding.cpus.end();
      if (binding.cpus.empty() || bound) mine.push_back(cpu);
    }
    binding.threads = std::max(1, count_cores(mine) / users[binding.cpus]);
  }
}

void bind_numa(const Topology& topology, std::vector<Binding>& out) {
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

void bind_gpu(const Topology& topology, const std::vector<PoolEntry>& pool, bool automatic, std::vector<Binding>& out) {
  const std::string option = automatic ? "near its GPU (the default where there are GPUs)" : "--bind-to gpu";
  for (Binding& binding : out) {
    const Gpu* gpu = pool[static_cast<std::size_t>(binding.gpu)].gpu;
    if (gpu == nullptr || gpu->node < 0) {
      binding.cpu_reason =
          option + ": not pinned, the kernel does not tell which cores are near GPU " + binding.gpu_name;
      continue;
    }
    for (const Cpu& cpu : topology.cpus) {
      const bool near = gpu->cpus.empty() ? cpu.node == gpu->node
                                          : std::find(gpu->cpus.begin(), gpu->cpus.end(), cpu.id) != gpu->cpus.end();
      if (near) binding.cpus.push_back(cpu.id);
    }
    binding.cpu_reason = option + ": NUMA node " + std::to_string(gpu->node);
    if (binding.cpus.empty()) binding.cpu_reason += ", but none of its cores is in the allowed set, so not pinned";
  }
  share_threads(topology, out);
}

void choose_gpus(const std::vector<PoolEntry>& pool, std::vector<Binding>& out) {
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    Binding& binding = out[rank];
    if (pool.empty()) {
      binding.gpu_reason = "this host shows no GPU";
      continue;
    }
    const std::size_t index = rank % pool.size();
    binding.gpu = static_cast<int>(index);
    binding.gpu_name = pool[index].name;
    binding.gpu_model = pool[index].gpu != nullptr ? pool[index].gpu->model : "";
    binding.gpu_reason = "number " + std::to_string(index) + " of " + counted(pool.size(), "GPU") + ", by local rank";
    if (out.size() > pool.size()) binding.gpu_reason += "; shared, because there are more ranks than GPUs";
  }
}

}  // namespace

std::vector<PoolEntry> gpu_pool(const Topology& topology, const BindRequest& request) {
  std::vector<PoolEntry> pool;
  if (!request.visible_devices_set) {
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
      const Gpu& gpu = topology.gpus[i];
      pool.push_back({gpu.uuid.empty() ? std::to_string(i) : gpu.uuid, &gpu});
    }
    return pool;
  }
  std::string_view rest = request.visible_devices;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = trim(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto number = parse_number(item, 0, static_cast<int>(topology.gpus.size()) - 1);
    const Gpu* found = number ? &topology.gpus[static_cast<std::size_t>(*number)] : nullptr;
    for (const Gpu& gpu : topology.gpus) {
      // CUDA accepts an unambiguous beginning of a UUID.
      if (item.starts_with("GPU-") && gpu.uuid.starts_with(item)) found = &gpu;
    }
    // As CUDA reads it: the first entry that it does not know ends the list.
    if (found == nullptr && !item.starts_with("MIG-")) break;
    pool.push_back({std::string(item), found});
  }
  return pool;
}

Result<std::vector<Binding>> bind(const Topology& topology, const BindRequest& request) {
  DISTRUN_CHECK(request.ranks > 0, "a host without ranks is not bound");
  std::vector<Binding> out(static_cast<std::size_t>(request.ranks));
  const std::vector<PoolEntry> pool = gpu_pool(topology, request);
  choose_gpus(pool, out);
  const bool automatic = request.bind_to == BindTo::kAuto;
  const BindTo wanted = automatic ? (pool.empty() ? BindTo::kNone : BindTo::kGpu) : request.bind_to;
  if (wanted == BindTo::kGpu && pool.empty()) {
    return Status(Errc::kInvalidArgument,
                  "--bind-to gpu: this host shows no GPU (" +
                      std::string(request.visible_devices_set ? "CUDA_VISIBLE_DEVICES=" + request.visible_devices
                                                              : "nothing under /proc/driver/nvidia/gpus") +
                      "); use --bind-to core, numa or none");
  }
  if (topology.cpus.empty() || wanted == BindTo::kNone) {
    const char* why = topology.cpus.empty() ? "not pinned: the kernel tells nothing about cores here"
                      : automatic           ? "not pinned (the default without GPUs)"
                                            : "not pinned, as --bind-to none says";
    bind_none(topology, out, why);
  } else if (wanted == BindTo::kCore) {
    bind_core(topology, out);
  } else if (wanted == BindTo::kNuma) {
    bind_numa(topology, out);
  } else {
    bind_gpu(topology, pool, automatic, out);
  }
  return out;
}

}  // namespace distrun::launcher
