#include "runtime/net/launchers/other_launcher.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "test/support/text.h"

namespace distrun::net {
namespace {

using Exchange = OtherLauncher::Exchange;

// The variables that each launcher sets for its rank 2 of 4, copied from two hosts with two ranks each.
const Environment kOpenMpi4 = {{"OMPI_COMM_WORLD_RANK", "2"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"PMIX_RANK", "2"},
                               {"PMIX_NAMESPACE", "3126657025"},
                               {"PMIX_SERVER_URI2", "3126657024.1;tcp4://127.0.0.1:42091"}};
const Environment kHydra = {
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "7"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSlurmStep = {{"SLURM_PROCID", "2"},
                                {"SLURM_STEP_NUM_TASKS", "4"},
                                {"SLURM_NTASKS", "4"},
                                {"SLURM_LOCALID", "0"},
                                {"SLURM_JOB_ID", "17"},
                                {"SLURM_STEP_ID", "0"},
                                {"SLURM_STEP_NODELIST", "h[1-2]"}};

Environment operator+(Environment one, const Environment& other) {
  for (const auto& [name, value] : other) one[name] = value;
  return one;
}

OtherLauncher found(const Environment& environment) {
  const auto launcher = other_launcher(environment);
  INFO((launcher.ok() ? "" : launcher.status().message()));
  REQUIRE(launcher.ok());
  REQUIRE(launcher->has_value());
  return **launcher;
}

bool alone(const Environment& environment) {
  const auto launcher = other_launcher(environment);
  return launcher.ok() && !launcher->has_value();
}

std::string refused(const Environment& environment) {
  const auto launcher = other_launcher(environment);
  REQUIRE_FALSE(launcher.ok());
  CHECK(launcher.status().code() == Errc::kInvalidArgument);
  return launcher.status().message();
}

using test::has;

// The environment without the variables that the error says to remove.
Environment cured(Environment environment) {
  std::istringstream words(refused(environment));
  int removed = 0;
  for (std::string word; words >> word;) {
    if (word != "-u" || !(words >> word)) continue;
    word.erase(std::min(word.find('`'), word.size()));
    removed += static_cast<int>(environment.erase(word));
  }
  CHECK(removed == 2);
  return environment;
}

TEST_CASE("each launcher's variables give the world and the exchange", "[net]") {
  CHECK(found(kOpenMpi4) == OtherLauncher{.rank = 2, .size = 4, .exchange = Exchange::kPmix, .job = "3126657025"});
  CHECK(found(kHydra) == OtherLauncher{.rank = 2, .size = 4, .exchange = Exchange::kPmi, .pmi_fd = 7});
  const Environment pmi2 = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "12"}, {"PMI_JOBID", "17.0"}};
  CHECK(found(kSlurmStep + pmi2) ==
        OtherLauncher{.rank = 2, .size = 4, .exchange = Exchange::kPmi, .pmi_fd = 12, .job = "17.0"});
  const Environment pmix = {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.17.0"}};
  CHECK(found(kSlurmStep + pmix) ==
        OtherLauncher{.rank = 2, .size = 4, .exchange = Exchange::kPmix, .job = "slurm.pmix.17.0"});
  CHECK(found(pmix) == OtherLauncher{.rank = 2, .size = 0, .exchange = Exchange::kPmix, .job = "slurm.pmix.17.0"});
}

TEST_CASE("no launcher, or one task, is a world of one", "[net]") {
  CHECK(alone({}));
  CHECK(alone(
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "n"}}));
  CHECK(alone({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}, {"PMI_FD", "5"}}));
  CHECK(alone({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
  // A batch script is not a step, however large the job is.
  CHECK(alone({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "17"}}));
  CHECK(alone({{"WORLD_SIZE", "1"}}));
  CHECK(alone({{"RANK", "3"}}));
  CHECK(alone({{"WORLD_SIZE", "large"}}));
  CHECK(alone({{"PMIX_RANK", "0"}}));
}

TEST_CASE("the inner launcher of two counts", "[net]") {
  // mpirun in an allocation: its daemons are the tasks of a step.
  CHECK(found(kOpenMpi4 + Environment{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}).size == 4);
  CHECK(found(kHydra + Environment{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}).rank == 2);
  // mpirun, typed in the shell of srun --mpi=pmi2 --pty.
  CHECK(found(kOpenMpi4 + Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).size == 4);
}

TEST_CASE("copies of one command are counted though they could not meet", "[net]") {
  const auto slurm = copy_of_command(kSlurmStep);
  REQUIRE(slurm);
  CHECK((slurm->rank == 2 && slurm->size == 4));
  CHECK(slurm->asked_by == "SLURM_STEP_NUM_TASKS=4");
  CHECK(copy_of_command(kOpenMpi4)->rank == 2);
  CHECK(copy_of_command(kHydra)->size == 4);
  CHECK_FALSE(copy_of_command({}));
  CHECK_FALSE(copy_of_command({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}));
  CHECK_FALSE(copy_of_command({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
  CHECK_FALSE(copy_of_command({{"SLURM_STEP_NUM_TASKS", "4"}}));  // no variable says which copy this is
}

TEST_CASE("variables that contradict each other are both named", "[net]") {
  const std::string sizes = refused(kOpenMpi4 + Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  CHECK(has(sizes, "OMPI_COMM_WORLD_SIZE=4 and PMI_SIZE=2"));
  CHECK(has(sizes, "env -u PMI_RANK -u PMI_SIZE"));
  CHECK(has(refused(kOpenMpi4 + Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}),
            "OMPI_COMM_WORLD_RANK=2 and PMI_RANK=0"));
  const std::string pmix = refused(kOpenMpi4 + Environment{{"PMIX_RANK", "0"}});
  CHECK(has(pmix, "OMPI_COMM_WORLD_RANK=2 and PMIX_RANK=0"));
  CHECK(has(pmix, "Start the program with `distrun -np N program`"));
  CHECK_FALSE(has(pmix, "env -u"));
  const std::string one =
      refused(kSlurmStep + Environment{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  CHECK(has(one, "OMPI_COMM_WORLD_SIZE=1 and SLURM_STEP_NUM_TASKS=4"));
  CHECK_FALSE(has(one, "env -u"));
  CHECK(has(refused(kOpenMpi4 + Environment{{"WORLD_SIZE", "16"}}), "WORLD_SIZE=16 differs from the 4 tasks"));
  CHECK(found(kOpenMpi4 + Environment{{"WORLD_SIZE", "4"}}).size == 4);
}

TEST_CASE("the variables that a contradiction says to remove are those that have to go", "[net]") {
  CHECK(found(cured(kOpenMpi4 + Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})).rank == 2);
  CHECK(found(cured(kOpenMpi4 + Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}})).rank == 2);
}

TEST_CASE("what is missing is named, with the cure", "[net]") {
  CHECK(has(refused({{"OMPI_COMM_WORLD_SIZE", "4"}}), "OMPI_COMM_WORLD_RANK is missing"));
  CHECK(has(refused({{"PMI_RANK", "1"}}), "PMI_SIZE is missing"));
  CHECK(has(refused({{"PMIX_RANK", "1"}}), "PMIX_NAMESPACE is missing"));
  CHECK(has(refused({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "4"}}), "OMPI_COMM_WORLD_RANK=4"));
  CHECK(has(refused({{"PMI_SIZE", "many"}}), "PMI_SIZE=many"));
  CHECK(has(refused({{"SLURM_STEP_NUM_TASKS", "-3"}}), "SLURM_STEP_NUM_TASKS=-3"));
  for (const Environment& bad : {Environment{{"PMI_RANK", "1"}}, Environment{{"OMPI_COMM_WORLD_SIZE", "4"}},
                                 Environment{{"WORLD_SIZE", "2"}}, kHydra + Environment{{"PMI_FD", ""}}}) {
    CHECK(has(refused(bad), "distrun -np N program"));
  }
}

TEST_CASE("a launcher without an exchange is refused with its own cure", "[net]") {
  const std::string slurm = refused(kSlurmStep);
  CHECK(has(slurm, "SLURM_STEP_NUM_TASKS=4"));
  CHECK(has(slurm, "srun --mpi=pmi2"));
  CHECK(has(refused(kHydra + Environment{{"PMI_FD", ""}, {"PMI_PORT", "h1:4000"}}), "-pmi-port"));
  CHECK(has(refused({{"WORLD_SIZE", "2"}, {"RANK", "0"}}), "WORLD_SIZE=2"));
}

TEST_CASE("where the launcher's own libpmix is") {
  const auto open_mpi_5 = other_launcher({{"OMPI_COMM_WORLD_SIZE", "2"},
                                          {"OMPI_COMM_WORLD_RANK", "1"},
                                          {"PMIX_RANK", "1"},
                                          {"PMIX_NAMESPACE", "job"},
                                          {"PMIX_PREFIX", "/opt/openmpi"}});
  REQUIRE(open_mpi_5.ok());
  CHECK((*open_mpi_5)->pmix_folders ==
        std::vector<std::string>{"/opt/openmpi/lib", "/opt/openmpi/lib64", "/opt/openmpi/lib/openmpi"});
}

}  // namespace
}  // namespace distrun::net
