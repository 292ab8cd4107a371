#include "launcher/plan/hints.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "launcher/plan/hosts/text.h"
#include "runtime/base/settings.h"

namespace distrun::launcher {
namespace {

using Hints = std::vector<std::string>;

bool by_mpi(const PlanRequest& request) { return !request.options.hosts.mpi.empty(); }

// Hints for jobs of several ranks. Scripts that import distrun learn the number of ranks from it.
struct ScriptHint {
  bool (*is_due)(const PlanRequest& request);
  const char* text;
  bool explains_failure = false;  // without this advice, ranks fail inside the framework
};
constexpr ScriptHint kScriptHints[] = {
    // Programs that find each other through MPI's own launcher also run without it, but each rank alone.
    {[](const PlanRequest& r) { return r.script.imports.mpi4py && !by_mpi(r); },
     "add --mpi (Open MPI), --mpi=hydra (MPICH, Intel MPI), --mpi=pmix or --mpi=pmi2 (srun): the script imports "
     "mpi4py, and without --mpi each rank is rank 0 of 1 in MPI"},
    {[](const PlanRequest& r) { return r.script.imports.horovod && !r.script.imports.distrun && !by_mpi(r); },
     "write `import distrun.torch as hvd` (or distrun.tensorflow, .keras, .mxnet), or add --mpi: the script imports "
     "horovod, and without --mpi each rank is rank 0 of 1 in Horovod"},
    // JAX asks the launchers that it knows for its rank, and none of them has started it.
    {[](const PlanRequest& r) {
       return r.script.imports.jax_unaided && !r.script.imports.distrun && !by_mpi(r) &&
              r.options.frameworks.mimic == Mimic::kNone;
     },
     "add --mimic openmpi, or call distrun.jax.initialize_distributed() instead: the script calls "
     "jax.distributed.initialize() without arguments, and JAX does not know distrun's variables"},
    // Without --local_rank such scripts run as if they were a single process.
    {[](const PlanRequest& r) { return r.script.imports.local_rank_option && !r.script.imports.distrun; },
     "read os.environ[\"LOCAL_RANK\"] in the script, or pass it: sh -c 'exec python train.py "
     "--local_rank=$LOCAL_RANK'. The script has the option --local_rank of torch.distributed.launch, which distrun and "
     "torchrun do not pass, so each rank may train alone"},
    // Without this variable each rank usually runs as if it were the only task, since scripts have defaults for use
    // without Slurm.
    {[](const PlanRequest& r) {
       return r.script.imports.slurm_rank && !r.script.imports.distrun && !by_mpi(r) &&
              r.options.frameworks.mimic == Mimic::kNone;
     },
     "add --mimic slurm, or read RANK and WORLD_SIZE in the script: it reads SLURM_PROCID, which only srun sets, so "
     "each rank may train alone"},
    {[](const PlanRequest& r) {
       return r.script.strategies.by_slurm && !by_mpi(r) && r.options.frameworks.mimic != Mimic::kSlurm;
     },
     "add --mimic slurm: the script uses SlurmClusterResolver, which reads the variables of srun"},
    // The resolver divides the GPUs that it sees among all processes of the host.
    {[](const PlanRequest& r) {
       return r.script.strategies.by_slurm && !by_mpi(r) && r.options.frameworks.mimic == Mimic::kSlurm &&
              r.options.frameworks.for_tf();
     },
     "leave out --tf and --tf-roles: the script uses SlurmClusterResolver, which divides the GPUs of a host itself and "
     "must see all of them"},
    {[](const PlanRequest& r) { return r.script.imports.dtensor && !r.script.imports.distrun; },
     "set DTENSOR_JOBS and DTENSOR_CLIENT_ID in the script first: without them TensorFlow's DTensor works alone in "
     "each rank. docs/reference/scripts-of-frameworks.md in the repository of distrun has the lines"},
};

// Scripts for tf.distribute that start without the option that they need.
constexpr ScriptHint kTensorFlowHints[] = {
    {[](const PlanRequest& r) {
       return r.script.strategies.multi_worker && r.script.strategies.fits && !r.options.frameworks.tf_keras3_mwms &&
              value_of(r.base.variables, "TF_USE_LEGACY_KERAS").empty();
     },
     "the script calls fit() under MultiWorkerMirroredStrategy, which fails with Keras 3: add --tf-keras3-mwms (it "
     "does nothing with Keras 2)",
     true},
    {[](const PlanRequest& r) {
       const Strategies& uses = r.script.strategies;
       return uses.mirrored && !uses.multi_worker && !uses.parameter_server && !r.script.imports.distrun;
     },
     "the script uses MirroredStrategy, which works inside one process: each rank trains alone. Start one rank with "
     "all "
     "GPUs (-np 1 --gpus-per-rank N), or use MultiWorkerMirroredStrategy"},
    {[](const PlanRequest& r) { return r.script.strategies.sets_tf_config && r.options.frameworks.tf_config; },
     "the script assigns TF_CONFIG itself, so ranks do not use the addresses and numbers that distrun gives them: "
     "remove "
     "that line, or put `if \"TF_CONFIG\" not in os.environ:` before it",
     true},
    {[](const PlanRequest& r) {
       return r.script.strategies.estimator_before_init && r.script.imports.distrun && r.options.frameworks.tf_config &&
              !r.options.frameworks.for_tf();
     },
     "the script makes an Estimator before init(), and it takes the job's TF_CONFIG for a cluster of its own: call "
     "init() first, or add --no-tf-config",
     true},
};

// Clusters with a chief or a ps need roles.
std::string hint_at_roles(const PlanRequest& request, std::size_t ranks) {
  const Strategies& uses = request.script.strategies;
  const bool known = !request.tf_roles.empty() || !request.options.frameworks.tf_config || uses.by_slurm;
  if (known || uses.sets_tf_config || uses.multi_worker || request.script.imports.distrun) return {};
  if (uses.parameter_server) {
    return "the script uses ParameterServerStrategy, which needs a chief, workers and a ps: add " +
           std::string(ranks < 3 ? "-np 3 " : "") +
           "--tf-roles chief=1,worker=" + std::to_string(std::max<std::size_t>(ranks, 3) - 2) + ",ps=1";
  }
  if (uses.estimator) {
    return "the script makes an Estimator, which needs a chief: add --tf-roles chief=1,worker=" +
           std::to_string(ranks - 1) + ", or --no-tf-config if each rank trains alone";
  }
  return {};
}

// Strategies for several processes use every GPU that a process sees.
void hint_at_tf(const PlanRequest& request, const LaunchPlan& plan, Hints& out) {
  const Strategies& strategies = request.script.strategies;
  if (request.options.frameworks.tf || request.options.placement.gpu_visibility == GpuVisibility::kOne) return;
  if (!strategies.multi_worker && !strategies.parameter_server) return;
  if (strategies.by_slurm) return;  // it gives each process its GPUs itself
  const bool shared = std::any_of(plan.places.begin(), plan.places.end(), [&plan](const Place& place) {
    const Binding& binding = plan.bindings[static_cast<std::size_t>(place.rank)];
    return place.local_size > 1 && binding.gpu >= 0 && !binding.own_gpu_only;
  });
  if (!shared) return;
  out.push_back(std::string("add --tf, so that each rank sees only its own GPU: the script uses ") +
                (strategies.multi_worker ? "MultiWorkerMirroredStrategy" : "ParameterServerStrategy") +
                ", which uses all GPUs that its process sees, and each rank sees all GPUs of its host");
}

// The resolver sorts the hosts by name.
void hint_at_slurm_resolver(const PlanRequest& request, const LaunchPlan& plan, Hints& out) {
  if (!request.script.strategies.by_slurm || by_mpi(request)) return;
  if (request.options.frameworks.mimic != Mimic::kSlurm) return;
  if (std::is_sorted(plan.host_names.begin(), plan.host_names.end())) return;
  out.push_back(
      "name the hosts in alphabetical order with -H: SlurmClusterResolver sorts them, and ranks would get the "
      "addresses of others. Now they are " +
      join(plan.host_names, ", "));
}

// JAX uses all GPUs that its process is given. With one process per host, users expect that to be all GPUs.
void hint_at_jax_gpus(const PlanRequest& request, const std::vector<HostFacts>& facts, const LaunchPlan& plan,
                      Hints& out) {
  if (!request.script.imports.jax_job || request.options.placement.gpus_per_rank != 0) return;
  for (const Place& place : plan.places) {
    const Binding& binding = plan.bindings[static_cast<std::size_t>(place.rank)];
    if (place.local_size > 1 || binding.gpu < 0 || binding.own_gpu_only) continue;
    const std::size_t gpus = gpu_pool(facts[static_cast<std::size_t>(place.host)].topology).size();
    if (gpus < 2) continue;
    const std::string all = std::to_string(gpus);
    out.push_back("rank " + std::to_string(place.rank) + " uses only 1 of the " + all +
                  " GPUs of its host. To give it all of them, add --gpus-per-rank " + all);
    return;
  }
}

bool says_false(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text == "false";
}

// The variable that makes OpenMP bind threads, if there is one. GNU's OpenMP, which comes with PyTorch, binds the
// thread that loads it. OMP_PROC_BIND overrides OMP_PLACES and GOMP_CPU_AFFINITY.
std::string binder_of_threads(const Environment& base) {
  const std::string bind = value_of(base, "OMP_PROC_BIND");
  if (!bind.empty() && !says_false(bind)) return "OMP_PROC_BIND";
  for (const char* name : {"OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (bind.empty() && !value_of(base, name).empty()) return name;
  }
  const std::string intel = value_of(base, "KMP_AFFINITY");
  for (const char* type : {"compact", "scatter", "balanced", "explicit"}) {
    if (intel.find(type) != std::string::npos) return "KMP_AFFINITY";
  }
  return {};
}

bool ranks_share_cores(const LaunchPlan& plan) {
  std::set<int> taken;
  return std::any_of(plan.places.begin(), plan.places.end(), [&](const Place& place) {
    if (place.local_rank == 0) taken.clear();  // the ranks of a machine are consecutive
    const std::vector<int>& cpus = plan.bindings[static_cast<std::size_t>(place.rank)].cpus;
    if (cpus.empty()) return place.local_size > 1;
    return !std::all_of(cpus.begin(), cpus.end(), [&taken](int cpu) { return taken.insert(cpu).second; });
  });
}

// Environment modules of clusters set such variables for srun and mpirun, which give each task its own cores.
void hint_at_bound_threads(const PlanRequest& request, const LaunchPlan& plan, Hints& out) {
  if (request.options.placement.bind_to == BindTo::kCore) return;  // too few cores for all ranks
  const std::string name = binder_of_threads(request.base.variables);
  if (name.empty() || !ranks_share_cores(plan)) return;
  out.push_back("add --bind-to core, or unset " + name +
                ": with it, OpenMP binds threads to cores, and the ranks of a host choose the same cores");
}

// For commands such as torchrun, typed as under srun with one task per node. Here each rank would start a separate job,
// all at the same port.
void hint_at_launcher(const std::string& launcher, const LaunchPlan& plan, Hints& out) {
  const bool several =
      std::any_of(plan.places.begin(), plan.places.end(), [](const Place& place) { return place.local_size > 1; });
  if (launcher.empty() || !several) return;
  out.push_back(
      launcher +
      " is a launcher too, and each rank of a host starts a job of its own with it. Start your script with distrun "
      "alone (distrun -np 8 train.py), or use one rank on each host (--nproc-per-node 1)");
}

void hint_at_encryption(const PlanRequest& request, const std::vector<HostFacts>& facts, Hints& out) {
  std::set<std::string> machines;  // with --mpi each rank has its own entry in facts
  for (std::size_t i = 0; i < facts.size(); ++i) machines.insert(request.assignment.hosts[i]);
  const auto settings = read_settings(request.base.variables, {});
  if (machines.size() < 2 || !settings.ok() || !settings->settings.encrypt) return;
  out.emplace_back("--encrypt does not encrypt the sockets that your program opens itself");
}

}  // namespace

std::vector<std::string> hints_for(const PlanRequest& request, const std::vector<HostFacts>& facts,
                                   const LaunchPlan& plan) {
  Hints out;
  hint_at_encryption(request, facts, out);
  hint_at_tf(request, plan, out);
  hint_at_jax_gpus(request, facts, plan, out);
  if (plan.places.size() < 2) return out;
  for (const ScriptHint& hint : kScriptHints) {
    if (hint.is_due(request)) out.emplace_back(hint.text);
  }
  for (const ScriptHint& hint : kTensorFlowHints) {
    if (hint.is_due(request)) out.emplace_back(hint.text);
  }
  if (std::string roles = hint_at_roles(request, plan.places.size()); !roles.empty()) out.push_back(std::move(roles));
  hint_at_slurm_resolver(request, plan, out);
  hint_at_bound_threads(request, plan, out);
  hint_at_launcher(request.script.launcher, plan, out);
  return out;
}

std::string hint_at_failure(const PlanRequest& request, std::size_t ranks) {
  if (ranks < 2) return {};
  const auto explains = [&request](const ScriptHint& hint) { return hint.explains_failure && hint.is_due(request); };
  const auto* const found = std::find_if(std::begin(kTensorFlowHints), std::end(kTensorFlowHints), explains);
  return found == std::end(kTensorFlowHints) ? hint_at_roles(request, ranks) : found->text;
}

std::string hint_at_early_ends(const Strategies& uses, const std::vector<int>& ended_well) {
  if (!uses.multi_worker || ended_well.empty()) return {};
  return rank_list(ended_well) +
         " had ended with code 0: under MultiWorkerMirroredStrategy all workers must make the same number of steps. "
         "Set steps_per_epoch in fit(), or let the dataset repeat()";
}

}  // namespace distrun::launcher
