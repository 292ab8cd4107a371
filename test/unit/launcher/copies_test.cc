#include "launcher/cli/copies.h"

#include <catch2/catch_test_macros.hpp>

#include "test/support/text.h"

namespace distrun::launcher {
namespace {

Environment step(int task) {
  return {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", std::to_string(task)}, {"SLURM_STEP_NUM_TASKS", "4"}};
}

using distrun::test::has;

TEST_CASE("of several copies of the command one starts the job, and one of the others says why") {
  const Options as_it_is;
  const Options named{.hosts = {.list = "h1:2,h2:2"}};
  const Options from_file{.hosts = {.file = "hosts"}};
  const Options dialled{.hosts = {.agents = 2}};
  for (const Options& options : {as_it_is, named, from_file, dialled}) {
    const AmongCopies first = among_copies(options, step(0));
    CHECK(first.starts);
    CHECK(has(first.text, "SLURM_STEP_NUM_TASKS=4 shows up to 4 copies of this command. This copy starts"));
    const AmongCopies second = among_copies(options, step(1));
    CHECK_FALSE(second.starts);
    for (const char* part : {"copy 1 of 4", "SLURM_STEP_NUM_TASKS=4", "type distrun once, without srun or mpirun",
                             "`srun --mpi=pmi2 python train.py`", "--no-detect", "env -u SLURM_STEP_NUM_TASKS"}) {
      CHECK(has(second.text, part));
    }
    const AmongCopies third = among_copies(options, step(2));
    CHECK_FALSE(third.starts);
    CHECK(has(third.text, "copy 2 of 4"));
    CHECK(has(third.text, "--no-detect"));
  }
  const AmongCopies by_mpirun = among_copies(named, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  CHECK_FALSE(by_mpirun.starts);
  CHECK(has(by_mpirun.text, "OMPI_COMM_WORLD_SIZE=2"));
  CHECK_FALSE(among_copies(named, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "5"}}).starts);
}

TEST_CASE("copies that are meant, and what is no copy") {
  const auto starts = [](const Options& options, const Environment& environment) {
    const AmongCopies copies = among_copies(options, environment);
    CHECK(copies.text.empty());
    return copies.starts;
  };
  CHECK(starts({.hosts = {.list = "h1:2", .detect = false}}, step(3)));
  const Options named{.hosts = {.list = "h1:2"}};
  CHECK(starts(named, {}));
  CHECK(starts(named, {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  // A command that a rank of distrun starts. The job sets another launcher's variables for its programs.
  CHECK(starts(named, {{"DISTRUN_RANK", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}));
  // A batch script, and a job of an array: each is one process, however many tasks the job has.
  CHECK(starts(named, {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
  CHECK(starts(named, {{"SLURM_JOB_ID", "9"}, {"SLURM_ARRAY_TASK_ID", "2"}, {"SLURM_NTASKS", "4"}}));
}

TEST_CASE("a pod's variables for torchrun say that each host has a copy") {
  const Environment pod = {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}};
  const AmongCopies none = among_copies({}, pod);
  CHECK_FALSE(none.starts);
  for (const char* part : {"PET_NNODES=2", "--agents N", "distrun agent --connect", "--no-detect"}) {
    CHECK(has(none.text, part));
  }
  CHECK_FALSE(among_copies({}, {{"PET_NNODES", "1:4"}}).starts);
  const Environment rank = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}};
  const AmongCopies warned = among_copies({}, rank);
  CHECK(warned.starts);
  for (const char* part : {"RANK=1 and WORLD_SIZE=2", "--agents N", "unset RANK WORLD_SIZE"}) {
    CHECK(has(warned.text, part));
  }
  for (const Environment& environment : {pod, rank}) {
    CHECK(among_copies({.hosts = {.agents = 2}}, environment).text.empty());
    CHECK(among_copies({.hosts = {.list = "h1,h2"}}, environment).text.empty());
    CHECK(among_copies({.hosts = {.file = "hosts"}}, environment).text.empty());
    CHECK(among_copies({.hosts = {.detect = false}}, environment).text.empty());
  }
  for (const Environment& environment :
       {Environment{{"PET_NNODES", "1"}}, Environment{{"PET_NNODES", ""}}, Environment{{"WORLD_SIZE", "2"}},
        Environment{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, Environment{{"RANK", "0"}, {"WORLD_SIZE", "all"}},
        Environment{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"DISTRUN_RANK", "1"}}}) {
    CHECK(among_copies({}, environment).text.empty());
  }
}

TEST_CASE("a platform that starts the command in each of its tasks is warned of") {
  const Environment tf = {{"TF_CONFIG", R"({"cluster": {"worker": ["h1:1", "h2:1"]}, "task": {"type": "worker"}})"}};
  const Environment sagemaker = {{"SM_HOSTS", R"(["algo-1", "algo-2"])"}};
  const AmongCopies warned = among_copies({}, tf);
  CHECK(warned.starts);
  for (const char* part : {"TF_CONFIG names 2 tasks and may be overwritten.", "--agents N", "unset TF_CONFIG"}) {
    CHECK(has(warned.text, part));
  }
  CHECK(has(among_copies({.frameworks = {.tf_config = false}}, tf).text, "TF_CONFIG names 2 tasks. "));
  CHECK(has(among_copies({}, sagemaker).text, "SM_HOSTS names 2 tasks. "));
  CHECK(has(among_copies({}, {{"JAX_NUM_PROCESSES", "3"}}).text, "JAX_NUM_PROCESSES names 3 tasks and will be"));
  for (const Environment& environment : {tf, sagemaker}) {
    CHECK(among_copies({.hosts = {.agents = 2}}, environment).text.empty());
    CHECK(among_copies({.hosts = {.list = "h1,h2"}}, environment).text.empty());
    CHECK(among_copies({.hosts = {.detect = false}}, environment).text.empty());
  }
  CHECK(among_copies({}, {{"AWS_BATCH_JOB_NUM_NODES", "1"}}).text.empty());
  CHECK(among_copies({}, {{"AWS_BATCH_JOB_NUM_NODES", "2"}, {"DISTRUN_RANK", "0"}}).text.empty());
}

}  // namespace
}  // namespace distrun::launcher
