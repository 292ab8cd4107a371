#include "launcher/plan/hints.h"

#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/environment/imports.h"

namespace distrun::launcher {
namespace {

TEST_CASE("what a script imports is found behind import and from alone") {
  const Imports found =
      imports_in("import torch\n  from mpi4py import MPI\nimport horovod.torch as hvd\n#import jax\n");
  CHECK((found.mpi4py && found.horovod && !found.jax_job && !found.distrun));
  CHECK(imports_in("import jax\njax.distributed.initialize()").jax_job);
  CHECK(imports_in("import jax\nhvd.initialize_distributed()").jax_job);
  CHECK_FALSE(imports_in("import jax").jax_job);
  CHECK(imports_in("import jax\njax.distributed.initialize()").jax_unaided);
  CHECK_FALSE(imports_in("import jax\njax.distributed.initialize(address, 2, 0)").jax_unaided);
  CHECK(imports_in("import jax, flax\nimport distrun.jax").distrun);
  CHECK_FALSE(imports_in("import jaxtyping\nprint('import jax')\ndistributed.initialize()").jax_job);
  CHECK(imports_in("p.add_argument('--local_rank', default=-1)").local_rank_option);
  CHECK(imports_in("p.add_argument(\"--local-rank\", type=int)").local_rank_option);
  CHECK_FALSE(imports_in("p.add_argument('--local_rank')\nos.environ['LOCAL_RANK']").local_rank_option);
  CHECK_FALSE(imports_in("# python -m torch.distributed.launch passes --local_rank").local_rank_option);
  CHECK_FALSE(imports_in("p.add_argument('--local_ranks_filter')").local_rank_option);
  CHECK(imports_in("import jax\njax.distributed.initialize()").jax_unaided);
  CHECK_FALSE(imports_in("import jax\nos.environ.get('JAX_PROCESS_ID')\njax.distributed.initialize()").jax_unaided);
  CHECK(imports_in("from tensorflow.experimental import dtensor\ndtensor.initialize_accelerator_system()").dtensor);
  CHECK(imports_in("mesh = tf.experimental.dtensor.create_distributed_mesh([('x', 2)])").dtensor);
  CHECK_FALSE(imports_in("mesh = dtensor.create_mesh([('x', 2)])").dtensor);
  CHECK_FALSE(imports_in("os.environ['DTENSOR_JOBS'] = jobs\ndtensor.initialize_accelerator_system()").dtensor);
  CHECK(imports_in("rank = int(os.environ.get('SLURM_PROCID', 0))").slurm_rank);
  CHECK_FALSE(imports_in("if 'RANK' in os.environ: a()\nelif \"SLURM_PROCID\" in os.environ: b()").slurm_rank);
}

TEST_CASE("a command that starts processes itself is known by its name or module") {
  using Words = std::vector<std::string>;
  CHECK(launcher_in({"torchrun", "--nproc-per-node", "2", "train.py"}) == "torchrun");
  CHECK(launcher_in({"/opt/venv/bin/deepspeed", "train.py"}) == "deepspeed");
  CHECK(launcher_in({"accelerate", "launch", "train.py"}) == "accelerate launch");
  CHECK(launcher_in({"/opt/venv/bin/fabric", "run", "--devices", "2", "train.py"}) == "fabric run");
  CHECK(launcher_in({"python3.11", "-u", "-m", "torch.distributed.run", "x.py"}) == "python -m torch.distributed.run");
  for (const Words& words : {Words{"accelerate", "env"}, Words{"python", "torchrun.py"}, Words{"python", "-m", "train"},
                             Words{"python", "-m"}, Words{"python", "-"}, Words{"./mpirun_all"}, Words{"accelerate"},
                             Words{"fabric", "run-all"}}) {
    CHECK(launcher_in(words).empty());
  }
}

TEST_CASE("--encrypt on several hosts says in one line what it does not cover") {
  PlanRequest request;
  const auto hints = [&request](const std::vector<HostSlots>& hosts) {
    request.assignment = *assign({.hosts = hosts});
    return make_plan(request, std::vector<HostFacts>(hosts.size()))->hints;
  };
  const std::vector<HostSlots> two = {{.name = "a", .slots = 1}, {.name = "b", .slots = 1}};
  CHECK(hints(two).empty());
  request.base.variables["DISTRUN_ENCRYPT"] = "true";
  CHECK(hints(two) ==
        std::vector<std::string>{"--encrypt does not encrypt the sockets that your program opens itself"});
  CHECK(hints({{.name = "a", .slots = 2}}).empty());
}

TEST_CASE("a launcher behind distrun is told of where a host has several ranks") {
  PlanRequest request{.script = {.launcher = "torchrun"}};
  const auto hints = [&request](const std::vector<HostSlots>& hosts) {
    request.assignment = *assign({.hosts = hosts});
    return make_plan(request, std::vector<HostFacts>(hosts.size()))->hints;
  };
  CHECK(hints({{.name = "a", .slots = 1}, {.name = "b", .slots = 1}}).empty());
  REQUIRE(hints({{.name = "a", .slots = 1}, {.name = "b", .slots = 2}}).size() == 1);
  CHECK(hints({{.name = "a", .slots = 2}})[0].starts_with(
      "torchrun is a launcher too, and each rank of a host starts a job of its own with it. Start your script"));
  request.script.launcher.clear();
  CHECK(hints({{.name = "a", .slots = 2}}).empty());
}

TEST_CASE("a script for another launcher that is started without it is told") {
  PlanRequest request;
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 2}}});
  const auto hints = [&request](const Imports& imports, const Options& options = {}) {
    request.script.imports = imports;
    request.options = options;
    return make_plan(request, {HostFacts{.ports = {1, 2, 3, 4}, .address = "A"}})->hints;
  };
  REQUIRE(hints({.mpi4py = true}).size() == 1);
  CHECK(hints({.mpi4py = true})[0].starts_with("add --mpi (Open MPI)"));
  REQUIRE(hints({.horovod = true}).size() == 1);
  CHECK(hints({.horovod = true})[0].find("import distrun.torch as hvd") != std::string::npos);
  CHECK(hints({.horovod = true, .distrun = true}).empty());
  CHECK(hints({.mpi4py = true, .horovod = true}, {.hosts = {.mpi = "mpirun"}}).empty());
  REQUIRE(hints({.local_rank_option = true}).size() == 1);
  CHECK(hints({.local_rank_option = true})[0].starts_with("read os.environ[\"LOCAL_RANK\"] in the script"));
  CHECK(hints({.distrun = true, .local_rank_option = true}).empty());
  REQUIRE(hints({.jax_unaided = true}).size() == 1);
  CHECK(hints({.jax_unaided = true})[0].find("add --mimic openmpi") != std::string::npos);
  CHECK(hints({.jax_unaided = true}, {.frameworks = {.mimic = Mimic::kSlurm}}).empty());
  CHECK(hints({.jax_unaided = true}, {.hosts = {.mpi = "mpirun"}}).empty());
  REQUIRE(hints({.slurm_rank = true}).size() == 1);
  CHECK(hints({.slurm_rank = true})[0].find("add --mimic slurm") != std::string::npos);
  CHECK(hints({.slurm_rank = true}, {.frameworks = {.mimic = Mimic::kSlurm}}).empty());
  CHECK(hints({.distrun = true, .slurm_rank = true}).empty());
  REQUIRE(hints({.dtensor = true}).size() == 1);
  CHECK(hints({.dtensor = true})[0].find("set DTENSOR_JOBS and DTENSOR_CLIENT_ID") != std::string::npos);
  CHECK(hints({.dtensor = true, .distrun = true}).empty());
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 1}}});
  CHECK(hints({.mpi4py = true}).empty());
}

TEST_CASE("JAX in a process that is alone with several GPUs is told of them") {
  PlanRequest request;
  request.script.imports.jax_job = true;
  HostFacts host{.ports = {1, 2, 3, 4}, .address = "A"};
  for (const char* bus : {"0000:01:00.0", "0000:02:00.0"}) host.topology.gpus.push_back({.bus = bus});
  const auto hints = [&](int ranks) {
    request.assignment = *assign({.hosts = {{.name = "a", .slots = 2}}, .placement = {.ranks = ranks}});
    return make_plan(request, {host})->hints;
  };
  REQUIRE(hints(1).size() == 1);
  CHECK(hints(1)[0].find("rank 0 uses only 1 of the 2 GPUs of its host") != std::string::npos);
  CHECK(hints(2).empty());
  request.options.placement.gpus_per_rank = 2;
  CHECK(hints(1).empty());
  request.options.placement.gpus_per_rank = 0;
  request.script.imports.jax_job = false;
  CHECK(hints(1).empty());
}

TEST_CASE("variables that have OpenMP bind threads are told of where ranks share cores") {
  PlanRequest request;
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 2}}});
  HostFacts host{.address = "A"};
  for (int cpu = 0; cpu < 2; ++cpu) host.topology.cpus.push_back({.id = cpu, .core = cpu});
  const auto hints = [&](const Environment& base, BindTo bind_to = BindTo::kAuto) {
    request.base = base_environment(base, {});
    request.options.placement.bind_to = bind_to;
    return make_plan(request, {host})->hints;
  };
  REQUIRE(hints({{"OMP_PROC_BIND", "close"}}).size() == 1);
  CHECK(hints({{"OMP_PROC_BIND", "close"}})[0] ==
        "add --bind-to core, or unset OMP_PROC_BIND: with it, OpenMP binds threads to cores, and the ranks of a host "
        "choose the same cores");
  CHECK(hints({{"OMP_PROC_BIND", "close"}}, BindTo::kNuma).size() == 1);
  CHECK(hints({{"OMP_PROC_BIND", "close"}}, BindTo::kCore).empty());
  for (const char* name : {"OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    CHECK(hints({{name, "{0}"}}).size() == 1);
    CHECK(hints({{name, "{0}"}, {"OMP_PROC_BIND", "False"}}).empty());
  }
  CHECK(hints({{"KMP_AFFINITY", "granularity=fine,compact,1,0"}}).size() == 1);
  CHECK(hints({{"KMP_AFFINITY", "none"}}).empty());
  CHECK(hints({{"OMP_PROC_BIND", ""}, {"OMP_NUM_THREADS", "1"}}).empty());
  // Each rank has a machine to itself.
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 1}, {.name = "b", .slots = 1}}});
  request.base = base_environment({{"OMP_PROC_BIND", "close"}}, {});
  for (const BindTo bind_to : {BindTo::kNone, BindTo::kNuma}) {
    request.options.placement.bind_to = bind_to;
    CHECK(make_plan(request, {host, host})->hints.empty());
  }
}

TEST_CASE("a worker of MultiWorkerMirroredStrategy that ended early gets a hint at the end of the job") {
  const Strategies uses{.multi_worker = true};
  CHECK(hint_at_early_ends(uses, {1}).starts_with("rank 1 had ended with code 0: under MultiWorkerMirroredStrategy"));
  CHECK(hint_at_early_ends(uses, {1, 2}).starts_with("ranks 1-2 had"));
  CHECK(hint_at_early_ends(uses, {}).empty());
  CHECK(hint_at_early_ends({.parameter_server = true}, {1}).empty());
}

TEST_CASE("a failure in TensorFlow or Keras that a hint explains has this hint as its cure") {
  const auto hint = [](const Strategies& uses, std::size_t ranks = 4) {
    PlanRequest request;
    request.script.strategies = uses;
    request.options.frameworks.tf_config = true;
    return hint_at_failure(request, ranks);
  };
  CHECK(hint({}).empty());
  CHECK(hint({.mirrored = true}).empty());  // each rank trains alone, and none fails
  CHECK(hint({.multi_worker = true}).empty());
  CHECK(hint({.multi_worker = true, .fits = true}).ends_with("add --tf-keras3-mwms (it does nothing with Keras 2)"));
  CHECK(hint({.multi_worker = true, .sets_tf_config = true}).starts_with("the script assigns TF_CONFIG itself"));
  CHECK(hint({.parameter_server = true}).ends_with("add --tf-roles chief=1,worker=2,ps=1"));
  CHECK(hint({.estimator = true}).find("--tf-roles chief=1,worker=3") != std::string::npos);
  CHECK(hint({.multi_worker = true, .fits = true}, 1).empty());
}

}  // namespace
}  // namespace distrun::launcher
