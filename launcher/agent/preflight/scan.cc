#include "launcher/agent/preflight/scan.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "launcher/plan/hosts/text.h"
#include "runtime/net/host/host_limits.h"

namespace distrun::launcher {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value after "key:" in a file of "key: value" lines.
std::string value_of_key(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos) return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::map<int, int> nodes_by_cpu(const std::string& sysroot) {
  std::map<int, int> out;
  const std::string directory = sysroot + "sys/devices/system/node/";
  for (const std::string& name : names_in(directory)) {
    if (!name.starts_with("node")) continue;
    const auto node = parse_number(std::string_view(name).substr(4), 0, 65535);
    if (!node) continue;
    for (const int cpu : parse_ranges(first_line(directory + name + "/cpulist"))) out[cpu] = *node;
  }
  return out;
}

std::vector<Cpu> scan_cpus(const std::string& sysroot) {
  // The affinity mask already respects the cpuset of a container or an allocation.
  std::string allowed = value_of_key(sysroot + "proc/self/status", "Cpus_allowed_list");
  if (allowed.empty()) allowed = first_line(sysroot + "sys/devices/system/cpu/online");
  const std::map<int, int> nodes = nodes_by_cpu(sysroot);
  std::map<std::string, int> cores;
  std::vector<Cpu> out;
  for (const int id : parse_ranges(allowed)) {
    // Sibling CPUs of one core have the same list. If the kernel has no such list, each CPU is treated as a core.
    std::string siblings =
        first_line(sysroot + "sys/devices/system/cpu/cpu" + std::to_string(id) + "/topology/thread_siblings_list");
    if (siblings.empty()) siblings = std::to_string(id);
    const int core = cores.emplace(siblings, static_cast<int>(cores.size())).first->second;
    const auto node = nodes.find(id);
    out.push_back({.id = id, .core = core, .node = node == nodes.end() ? 0 : node->second});
  }
  return out;
}

// The CPU quota of a container or pod (docker --cpus, limits.cpu) in whole CPUs, rounded up. A quota hides no CPU from
// the affinity mask.
int scan_quota(const std::string& sysroot) {
  constexpr std::uint64_t kMost = 65536;
  const std::uint64_t cpus = (net::core_share(sysroot).quota_millis + 999) / 1000;
  return static_cast<int>(std::min(cpus, kMost));
}

// "gi7" with the prefix "gi" gives 7.
std::optional<int> number_behind(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return parse_number(std::string_view(name).substr(prefix.size()), 0, 65535);
}

// A container may list all GPUs of the machine but have device files only for its own. A job may see all device files
// but may open only its own (Slurm's ConstrainDevices). The kernel asks the control group for this check as it does for
// an open().
bool may_open(const std::string& device, int how) { return ::access(device.c_str(), how) == 0; }

// The driver gives each instance a capability: a file that names a device file. Permission to open that device file is
// the right to use the instance.
bool may_use(const std::string& sysroot, const std::string& instance) {
  const auto minor = parse_number(value_of_key(instance + "/access", "DeviceFileMinor"), 0, 65535);
  return minor && may_open(sysroot + "dev/nvidia-caps/nvidia-cap" + std::to_string(*minor), R_OK);
}

std::vector<Slice> scan_slices(const std::string& sysroot, int minor) {
  std::vector<Slice> out;
  const std::string mig = sysroot + "proc/driver/nvidia/capabilities/gpu" + std::to_string(minor) + "/mig/";
  for (const std::string& name : names_in(mig)) {
    const auto gpu_instance = number_behind(name, "gi");
    if (!gpu_instance || !may_use(sysroot, mig + name)) continue;
    for (const std::string& inner : names_in(mig + name)) {
      const auto compute_instance = number_behind(inner, "ci");
      if (compute_instance && may_use(sysroot, mig + name + "/" + inner)) {
        out.push_back({.gpu_instance = *gpu_instance, .compute_instance = *compute_instance});
      }
    }
  }
  std::sort(out.begin(), out.end(), [](const Slice& a, const Slice& b) {
    return std::pair(a.gpu_instance, a.compute_instance) < std::pair(b.gpu_instance, b.compute_instance);
  });
  return out;
}

std::vector<Gpu> scan_gpus(const std::string& sysroot) {
  std::vector<Gpu> out;
  const std::string directory = sysroot + "proc/driver/nvidia/gpus/";
  for (const std::string& bus : names_in(directory)) {
    const std::string information = directory + bus + "/information";
    Gpu gpu{.bus = bus};
    gpu.uuid = value_of_key(information, "GPU UUID");
    if (gpu.uuid.find('?') != std::string::npos) gpu.uuid.clear();  // not known before the driver has opened the GPU
    gpu.model = value_of_key(information, "Model");
    gpu.minor = parse_number(value_of_key(information, "Device Minor"), 0, 65535).value_or(-1);
    const std::string device = sysroot + "sys/bus/pci/devices/" + bus;
    gpu.node = parse_number(first_line(device + "/numa_node"), 0, 65535).value_or(-1);
    gpu.cpus = parse_ranges(first_line(device + "/local_cpulist"));
    gpu.slices = scan_slices(sysroot, gpu.minor);
    const bool usable = gpu.minor < 0 || may_open(sysroot + "dev/nvidia" + std::to_string(gpu.minor), R_OK | W_OK);
    if (usable) out.push_back(std::move(gpu));
  }
  return out;
}

}  // namespace

std::string machine_identity() {
  std::string out = first_line("/proc/sys/kernel/random/boot_id");
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    std::error_code error;
    out += " " + fs::read_symlink(space, error).string();
  }
  // A copy of a running virtual machine has the same values for all of these, so the host name is added.
  return out + " " + first_line("/proc/sys/kernel/hostname");
}

Topology scan_topology(const std::string& sysroot) {
  const std::string root = sysroot.ends_with('/') ? sysroot : sysroot + "/";
  return {.cpus = scan_cpus(root), .quota = scan_quota(root), .gpus = scan_gpus(root)};
}

}  // namespace distrun::launcher
