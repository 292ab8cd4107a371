#include "launcher/plan/schedulers/mpi.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/hosts/text.h"
#include "launcher/spawn/remote_command.h"

namespace distrun::launcher {
namespace {

Assignment four_on_two() {
  const auto assignment =
      assign({.hosts = {{.name = "h1", .slots = 2}, {.name = "h2", .slots = 2}}, .placement = {.ranks = 4}});
  REQUIRE(assignment.ok());
  return *assignment;
}

std::string text(MpiStarter starter, const Assignment& assignment) {
  const auto argv = mpi_argv(starter, assignment, {}, {"wrapper", "10.0.0.1:7"});
  INFO((argv.ok() ? "" : argv.status().message()));
  REQUIRE(argv.ok());
  return join(*argv, " ");
}

TEST_CASE("MPI's launcher is given the places of the plan", "[launcher]") {
  CHECK(text(MpiStarter::kMpirun, four_on_two()) ==
        "mpirun -np 4 --host h1:2,h2:2 --map-by slot --bind-to none --stdin all wrapper 10.0.0.1:7");
  CHECK(text(MpiStarter::kHydra, four_on_two()) ==
        "mpiexec.hydra -n 4 -hosts h1:2,h2:2 -bind-to none wrapper 10.0.0.1:7");
  const auto master = assign({.hosts = {{.name = "h1", .slots = 8}}, .placement = {.ranks = 1}});
  REQUIRE(master.ok());  // the slots are for the processes that it spawns
  CHECK(text(MpiStarter::kMpirun, *master).starts_with("mpirun -np 1 --host h1:8 "));
  const auto more = assign({.hosts = {{.name = "h1", .slots = 2}}, .placement = {.ranks = 4, .oversubscribe = true}});
  REQUIRE(more.ok());
  CHECK(text(MpiStarter::kMpirun, *more).starts_with("mpirun -np 4 --host h1:4 "));
  const std::string srun = text(MpiStarter::kSrunPmi2, four_on_two());
  CHECK(srun.starts_with("srun --mpi=pmi2 "));
  CHECK(srun.find(" --export=ALL ") != std::string::npos);  // needed after sbatch --export=NONE
  CHECK(srun.find("--nodelist=h1,h2 --nodes=2 --ntasks=4 --ntasks-per-node=2 wrapper") != std::string::npos);
  Assignment crowded = four_on_two();
  crowded.oversubscribed = true;
  CHECK(text(MpiStarter::kSrunPmi2, crowded).find(" --overcommit wrapper") != std::string::npos);
}

TEST_CASE("only mpirun of Open MPI is told that it may run as root", "[launcher]") {
  const auto argv = [](MpiStarter starter, bool as_root) {
    return join(*mpi_argv(starter, four_on_two(), {}, {"wrapper"}, as_root), " ");
  };
  CHECK(argv(MpiStarter::kMpirun, true).ends_with(" --allow-run-as-root wrapper"));
  for (const auto& text :
       {argv(MpiStarter::kMpirun, false), argv(MpiStarter::kHydra, true), argv(MpiStarter::kSrunPmix, true)})
    CHECK(text.find("root") == std::string::npos);
}

TEST_CASE("what MPI's launcher cannot do is refused", "[launcher]") {
  Assignment uneven = four_on_two();
  uneven.places.pop_back();
  CHECK_FALSE(mpi_argv(MpiStarter::kSrunPmix, uneven, {}, {}).ok());
  CHECK(mpi_argv(MpiStarter::kMpirun, uneven, {}, {}).ok());
  Assignment named = four_on_two();
  named.users[1] = "me";
  CHECK(mpi_argv(MpiStarter::kMpirun, named, {}, {}).status().message().find("me@h2") != std::string::npos);
  CHECK(parse_mpi_starter("pmix") == MpiStarter::kSrunPmix);
  CHECK(parse_mpi_starter("hydra") == MpiStarter::kHydra);
  CHECK_FALSE(parse_mpi_starter("mpich"));
  CHECK(shares_key_by_pmi(MpiStarter::kHydra));
  CHECK_FALSE(shares_key_by_pmi(MpiStarter::kMpirun));
}

TEST_CASE("srun starts ranks in the one component of a heterogeneous job that has their hosts", "[launcher]") {
  const Environment job = {{"SLURM_HET_SIZE", "3"},
                           {"SLURM_JOB_NODELIST_HET_GROUP_0", "h[1,3]"},
                           {"SLURM_JOB_NODELIST_HET_GROUP_1", "h[1-2]"},
                           {"SLURM_JOB_NODELIST_HET_GROUP_2", "h[4-5]"}};
  const auto srun = [&job](const std::string& hosts) {
    const auto argv = mpi_argv(MpiStarter::kSrunPmix, *assign({.hosts = *parse_hosts(hosts)}), job, {"wrapper"});
    return argv.ok() ? join(*argv, " ") : argv.status().message();
  };
  CHECK(srun("h1:2,h3:2").ends_with(" --ntasks-per-node=2 wrapper"));
  CHECK(srun("h1:2,h2:2").ends_with(" --het-group=1 wrapper"));
  CHECK(srun("h5:4").ends_with(" --het-group=2 wrapper"));
  const std::string refused = srun("h1:1,h2:1,h4:1");
  CHECK(
      refused.starts_with("--mpi=pmix can use one component of a heterogeneous Slurm job, and these hosts are in "
                          "several: h1,h2,h4. Use -H with the hosts of one "));
  CHECK(mpi_argv(MpiStarter::kMpirun, four_on_two(), job, {}).ok());
  const Environment broken = {{"SLURM_HET_SIZE", "2"}, {"SLURM_JOB_NODELIST_HET_GROUP_0", "h["}};
  CHECK_FALSE(mpi_argv(MpiStarter::kSrunPmix, four_on_two(), broken, {}).ok());
}

TEST_CASE("each rank gets an agent of its own, and stays where it is", "[launcher]") {
  const Assignment each = one_agent_per_rank(four_on_two());
  CHECK(each.hosts == std::vector<std::string>{"h1", "h1", "h2", "h2"});
  CHECK(each.users.size() == 4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    Place expected = four_on_two().places[rank];
    expected.host = static_cast<int>(rank);
    CHECK(each.places[rank] == expected);
  }
}

TEST_CASE("the launcher's variables reach the rank", "[launcher]") {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "PMI_FD", "ORTE_SCHIZO_DETECTION", "SLURM_STEP_ID",
                           "MPI_LOCALRANKID", "MPICH_INTERFACE_HOSTNAME"}) {
    CHECK(needed_by_mpi(name));
  }
  CHECK_FALSE(needed_by_mpi("PATH"));
  CHECK_FALSE(needed_by_mpi("TORCHELASTIC_USE_AGENT_STORE"));
}

TEST_CASE("MPI's launcher carries nothing to other hosts that is true on this one only") {
  const Environment everywhere = {{"HOME", "/h"}, {"PATH", "/bin"}, {"TMPDIR", "/scratch/7"}, {"KRB5CCNAME", "KCM:"}};
  Environment user = everywhere;
  for (const char* name : {"HOSTNAME", "CUDA_VISIBLE_DEVICES", "DISPLAY", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"}) {
    user[name] = "here";
  }
  Environment for_ssh = everywhere;
  for_ssh["SSH_AUTH_SOCK"] = "here";
  CHECK(environment_of_starter(MpiStarter::kMpirun, user) == for_ssh);
  CHECK(environment_of_starter(MpiStarter::kHydra, user) == for_ssh);
  CHECK(environment_of_starter(MpiStarter::kSrunPmix, user) == everywhere);
  CHECK(environment_of_starter(MpiStarter::kSrunPmi2, user) == everywhere);
}

TEST_CASE("the wrapper is the same file, else the one on PATH", "[launcher]") {
  const auto words = wrapper_command("/opt/a b/distrun", {"10.0.0.1:7", "[fd00::1]:7"});
  REQUIRE(words.size() == 6);
  CHECK(words[2] ==
        "if [ -x '/opt/a b/distrun' ]; then exec '/opt/a b/distrun' agent --mpi \"$@\"; else exec distrun "
        "agent --mpi \"$@\"; fi");
  CHECK(words[5] == "[fd00::1]:7");
}

}  // namespace
}  // namespace distrun::launcher
