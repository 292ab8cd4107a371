// The variables that are set for one rank: those of distrun, and those that other frameworks read.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/text.h"
#include "runtime/net/identity/world.h"

namespace distrun::launcher {
namespace {

std::string port_text(std::uint16_t port) { return port == 0 ? "<free port>" : std::to_string(port); }

std::string with_port(const std::string& address, std::uint16_t port) {
  return (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":" + port_text(port);
}

const std::string& address_of(const JobFacts& facts, std::size_t rank) {
  return facts.address[static_cast<std::size_t>(facts.places[rank].host)];
}

std::string interface_of(const JobFacts& facts, const Place& place) {
  const auto host = static_cast<std::size_t>(place.host);
  return host < facts.interface.size() ? facts.interface[host] : "";
}

using Variables = std::vector<Variable>;

bool sees_own_only(const Options& options, const Binding& binding) {
  return binding.gpu >= 0 && (binding.own_gpu_only || options.placement.gpu_visibility == GpuVisibility::kOne);
}

// As the rank numbers the GPUs that it sees.
std::vector<int> own_gpus(const Options& options, const Binding& binding) {
  std::vector<int> out;
  const int first = sees_own_only(options, binding) ? 0 : binding.gpu;
  for (int i = 0; binding.gpu >= 0 && i < binding.gpus; ++i) out.push_back(first + i);
  return out;
}

void add_distrun_variables(const JobFacts& facts, const Place& place, const std::vector<int>& gpus, Variables& out) {
  net::World world;
  world.rank = place.rank;
  world.size = static_cast<int>(facts.places.size());
  world.local_rank = place.local_rank;
  world.local_size = place.local_size;
  world.cross_rank = place.cross_rank;
  world.cross_size = place.cross_size;
  world.host = facts.hosts[static_cast<std::size_t>(place.host)];
  world.job_id = facts.job_id;
  world.store = facts.store;
  world.gpus = gpus;
  if (!interface_of(facts, place).empty()) world.address = facts.address[static_cast<std::size_t>(place.host)];
  for (const auto& [name, value] : net::to_environment(world))
    out.push_back({name, value, "distrun's own runtime reads it"});
  out.push_back({"DISTRUN_KEY_FD", std::to_string(facts.key_fd), "the descriptor that holds the job's key"});
}

void add_torch(const JobFacts& facts, const Place& place, Variables& out) {
  const std::string rank = std::to_string(place.rank);
  const std::string size = std::to_string(facts.places.size());
  const std::string node = std::to_string(facts.node[static_cast<std::size_t>(place.rank)]);
  const auto add = [&out](const char* name, const std::string& value) {
    out.push_back({name, value, "PyTorch (torchrun's names)"});
  };
  add("RANK", rank);
  add("WORLD_SIZE", size);
  add("LOCAL_RANK", std::to_string(place.local_rank));
  add("LOCAL_WORLD_SIZE", std::to_string(place.local_size));
  out.push_back({"LOCAL_SIZE", std::to_string(place.local_size),
                 "PyTorch: scripts that read this name instead of LOCAL_WORLD_SIZE"});
  add("NODE_RANK", node);
  add("GROUP_RANK", node);
  add("GROUP_WORLD_SIZE", std::to_string(facts.node.back() + 1));
  add("ROLE_NAME", "default");
  add("ROLE_RANK", rank);
  add("ROLE_WORLD_SIZE", size);
  // These tell programs that a launcher started each rank as a separate process. Otherwise Lightning would use Slurm's
  // variables in a Slurm job. TORCHELASTIC_USE_AGENT_STORE is not set, because no process listens at MASTER_PORT yet.
  add("TORCHELASTIC_RUN_ID", facts.job_id);
  add("TORCHELASTIC_RESTART_COUNT", "0");
  add("TORCHELASTIC_MAX_RESTARTS", "0");
  const std::string& master = facts.master_name.empty() ? address_of(facts, 0) : facts.master_name;
  out.push_back({"MASTER_ADDR", master, "PyTorch: the host of rank 0"});
  out.push_back(
      {"MASTER_PORT", port_text(facts.master_port), "PyTorch: a free port on the host of rank 0, or the one of -x"});
}

// Does not set JAX_COORDINATOR_BIND_ADDRESS. If a script passes its own address, JAX would listen at the variable's
// port and connect to the script's.
void add_jax(const JobFacts& facts, int rank, const std::vector<int>& gpus, Variables& out) {
  const std::string coordinator = with_port(address_of(facts, 0), facts.jax_port);
  out.push_back({"JAX_COORDINATOR_ADDRESS", coordinator, "JAX: the host of rank 0"});
  // JAX itself does not read these. Scripts read them and pass them on.
  for (const char* name : {"JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"}) {
    out.push_back({name, std::to_string(facts.places.size()), "scripts that start jax.distributed"});
  }
  for (const char* name : {"JAX_PROCESS_ID", "JAX_PROCESS_INDEX"}) {
    out.push_back({name, std::to_string(rank), "scripts that start jax.distributed"});
  }
  const char* keras = "Keras 3 on JAX: keras.distribution.initialize()";
  out.push_back({"KERAS_DISTRIBUTION_JOB_ADDRESSES", coordinator, keras});  // JAX needs only the first address
  out.push_back({"KERAS_DISTRIBUTION_NUM_PROCESSES", std::to_string(facts.places.size()), keras});
  out.push_back({"KERAS_DISTRIBUTION_PROCESS_ID", std::to_string(rank), keras});
  if (gpus.empty()) return;
  std::vector<std::string> numbers;
  for (const int gpu : gpus) numbers.push_back(std::to_string(gpu));
  out.push_back({"JAX_LOCAL_DEVICE_IDS", join(numbers, ","), "JAX: the GPU of this rank, among those that it sees"});
}

void add_horovod(const JobFacts& facts, const Place& place, Variables& out) {
  const char* why = "--horovod: for scripts that read Horovod's variables";
  out.push_back({"HOROVOD_RANK", std::to_string(place.rank), why});
  out.push_back({"HOROVOD_SIZE", std::to_string(facts.places.size()), why});
  out.push_back({"HOROVOD_LOCAL_RANK", std::to_string(place.local_rank), why});
  out.push_back({"HOROVOD_LOCAL_SIZE", std::to_string(place.local_size), why});
  out.push_back({"HOROVOD_CROSS_RANK", std::to_string(place.cross_rank), why});
  out.push_back({"HOROVOD_CROSS_SIZE", std::to_string(place.cross_size), why});
  out.push_back({"HOROVOD_HOSTNAME", facts.hosts[static_cast<std::size_t>(place.host)], why});
}

// Does not override a variable that the user has set.
void add_default(const Environment& base, Variable variable, Variables& out) {
  if (!base.contains(variable.name)) out.push_back(std::move(variable));
}

TfRole role_of(const JobFacts& facts, std::size_t rank) {
  const std::vector<TfRole>& roles = facts.tf_roles;
  return roles.empty() ? TfRole{"worker", static_cast<int>(rank)} : roles[rank];
}

void add_gpu(const Options& options, const Binding& binding, const Environment& base, Variables& out) {
  add_default(base, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID", "every rank counts GPUs in the same order"}, out);
  if (binding.own_gpu_only) {
    out.push_back(
        {"CUDA_VISIBLE_DEVICES", binding.gpu_name, "MIG mode: a process can use only one slice, the one of this rank"});
  } else if (sees_own_only(options, binding)) {
    out.push_back(
        {"CUDA_VISIBLE_DEVICES", binding.gpu_name,
         binding.gpus == 1 ? "--gpu-visibility one: only the GPU of this rank" : "only the GPUs of this rank"});
  }
}

constexpr std::array<const char*, 3> kProxies = {"grpc_proxy", "https_proxy", "http_proxy"};  // in gRPC's order

}  // namespace

std::optional<Variable> no_grpc_proxy(const JobFacts& facts, const Environment& base) {
  const auto proxy = std::find_if(kProxies.begin(), kProxies.end(),
                                  [&base](const char* name) { return !value_of(base, name).empty(); });
  if (proxy == kProxies.end()) return std::nullopt;
  // gRPC reads no_proxy only if there is no no_grpc_proxy. An enclosing job may have set the latter, with its own
  // hosts.
  const std::string own = value_of(base, base.contains("no_grpc_proxy") ? "no_grpc_proxy" : "no_proxy");
  const auto direct = [&](std::set<std::string> hosts) {
    hosts.insert({"localhost", "127.0.0.1"});
    const std::string why =
        "gRPC (TensorFlow, JAX) goes to the job's hosts without the proxy of " + std::string(*proxy);
    return Variable{"no_grpc_proxy", (own.empty() ? "" : own + ",") + join({hosts.begin(), hosts.end()}, ","), why};
  };
  // Includes the names, because scripts may use those to reach the hosts.
  std::set<std::string> hosts(facts.hosts.begin(), facts.hosts.end());
  hosts.insert(facts.address.begin(), facts.address.end());
  Variable out = direct(std::move(hosts));
  // From about 5,000 hosts on there is only room for JAX's host.
  if (out.name.size() + 1 + out.value.size() >= kLongestVariable) out = direct({address_of(facts, 0)});
  return out;
}

bool needs_tf_config(const FrameworkOptions& frameworks, std::size_t ranks) {
  return frameworks.tf_config && (ranks > 1 || frameworks.for_tf());
}

std::string tf_cluster(const JobFacts& facts) {
  std::map<std::string, std::string> cluster;
  for (std::size_t r = 0; r < facts.places.size(); ++r) {
    const TfRole role = role_of(facts, r);
    // TensorFlow's evaluator is not a task of the training cluster.
    if (role.type == "evaluator") continue;
    const std::uint16_t port = facts.tf_ports.empty() ? std::uint16_t{0} : facts.tf_ports[r];
    std::string& list = cluster[role.type];
    list += (list.empty() ? "" : ", ") + json_quote(with_port(address_of(facts, r), port));
  }
  std::string out = "{\"cluster\": {";
  for (const auto& [type, list] : cluster) {
    if (out.back() == ']') out += ", ";
    out += json_quote(type) + ": [" + list + "]";
  }
  return out + "}";
}

std::string tf_task(const JobFacts& facts, int rank) {
  const TfRole mine = role_of(facts, static_cast<std::size_t>(rank));
  return ", \"task\": {\"type\": " + json_quote(mine.type) + ", \"index\": " + std::to_string(mine.index) + "}}";
}

std::vector<Variable> rank_environment(const JobFacts& facts, const Options& options, const Binding& binding,
                                       const Environment& base, int rank) {
  const Place& place = facts.places[static_cast<std::size_t>(rank)];
  const std::vector<int> gpus = own_gpus(options, binding);
  Variables out;
  add_distrun_variables(facts, place, gpus, out);
  add_torch(facts, place, out);
  if (facts.tf_config) {
    out.push_back({"TF_CONFIG", tf_task(facts, rank), "TensorFlow (--no-tf-config leaves it out)", true});
    if (options.frameworks.for_tf()) {
      out.push_back(
          {"DISTRUN_TF", "1", "the strategy of the script reads TF_CONFIG, so distrun.tensorflow does not remove it"});
    }
  }
  add_jax(facts, rank, gpus, out);
  add_mimicked(facts, options.frameworks.mimic, base, rank, out);
  if (options.frameworks.horovod) add_horovod(facts, place, out);
  add_gpu(options, binding, base, out);
  if (const std::string interface = interface_of(facts, place); !interface.empty()) {
    const char* why = "the interface on which the hosts reach each other";
    // Without the = NCCL treats the name as a prefix.
    add_default(base, {"NCCL_SOCKET_IFNAME", "=" + interface, why}, out);
    add_default(base, {"GLOO_SOCKET_IFNAME", interface, why}, out);
    add_default(base, {"TP_SOCKET_IFNAME", interface, why}, out);
  }
  add_default(base,
              {"OMP_NUM_THREADS", binding.known ? std::to_string(binding.threads) : "<cores / ranks>", "cores / ranks"},
              out);
  add_default(base, {"PYTHONUNBUFFERED", "1", "lines of Python programs appear when they are written"}, out);
  add_default(base, {"PYTHONFAULTHANDLER", "1", "a crash of a Python program shows where it was"}, out);
  return out;
}

}  // namespace distrun::launcher
