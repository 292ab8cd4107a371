#include "launcher/plan/schedulers/allocation.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "launcher/plan/schedulers/slurm.h"
#include "launcher/spawn/remote_command.h"

extern const char* const kGolden;

namespace distrun::launcher {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Environment environment_of(const fs::path& file) {
  Environment out;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    out[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return out;
}

// The files of a case are in the folder of its environment, whatever folder the environment names.
ReadFile reader_of(const fs::path& folder) {
  return [folder](const std::string& path) -> Result<std::string> {
    const fs::path file = folder / fs::path(path).filename();
    if (!fs::exists(file)) return Status(Errc::kSystem, "cannot read " + path + ": No such file or directory");
    return read(file);
  };
}

std::string shown(const Result<std::optional<Allocation>>& found) {
  if (!found.ok()) return "error: " + found.status().message() + "\n";
  if (!*found) return "nothing\n";
  const Allocation& allocation = **found;
  std::string out = found_text(allocation) + "\n";
  for (const HostSlots& host : allocation.hosts) {
    out += spelt(host) + " " + (host.slots ? std::to_string(*host.slots) : "?");
    if (host.max_slots > 0) out += " of " + std::to_string(host.max_slots);
    if (host.without_gpus > 0) out += ", or " + std::to_string(host.without_gpus) + " without GPUs";
    out += host.counted ? " (nobody asked for them)\n" : "\n";
  }
  if (!allocation.own_name.empty()) out += "this machine: " + allocation.own_name + "\n";
  if (!allocation.advice.empty()) out += "advice: " + allocation.advice + "\n";
  return out + "more: " + allocation.more_slots + "\n";
}

// golden/slurm_*: cases with a job number below 16 have the variables that Slurm 22.05 set in such jobs. The other
// cases follow the documentation of the schedulers.
TEST_CASE("allocations are found as the golden files say") {
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    const fs::path folder = entry.path();
    INFO(folder.filename());
    const auto found = detect_allocation(environment_of(folder / "environment"), reader_of(folder));
    CHECK(shown(found) == read(folder / "expected"));
    if (!found.ok()) CHECK(found.status().code() == Errc::kSystem);
    ++cases;
  }
  CHECK(cases > 30);
}

// Not run by default. After a change of the texts, run launcher_plan_test "[.golden]" and check the difference.
TEST_CASE("the golden files are written anew", "[.golden]") {
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    const auto found = detect_allocation(environment_of(entry.path() / "environment"), reader_of(entry.path()));
    std::ofstream(entry.path() / "expected") << shown(found);
  }
}

TEST_CASE("inside Slurm agents start by srun, elsewhere by ssh") {
  const auto no_file = [](const std::string& path) -> Result<std::string> { return errno_status(path, ENOENT); };
  const auto slurm = detect_allocation({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}}, no_file);
  REQUIRE(slurm.ok());
  REQUIRE(slurm->has_value());
  const auto argv = launch_argv((*slurm)->launch_with, "", "n2", "exec it");
  REQUIRE(argv.ok());
  CHECK(argv->front() == "srun");
  CHECK(std::find(argv->begin(), argv->end(), "--nodelist=n2") != argv->end());
  CHECK(argv->back() == "exec it");
  const auto lsf = detect_allocation({{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "a 2 b 2"}}, no_file);
  REQUIRE(lsf.ok());
  REQUIRE(lsf->has_value());
  CHECK((*lsf)->launch_with.empty());
}

TEST_CASE("a list with one line or slot per host gives no slot count: GPUs and --nproc-per-node count there") {
  const auto hosts = [](const Environment& job, const std::string& file) {
    const auto found = detect_allocation(job, [&](const std::string&) { return Result<std::string>(file); });
    REQUIRE((found.ok() && found->has_value()));
    return (*found)->hosts;
  };
  using List = std::vector<HostSlots>;
  const List open = {{.name = "a", .without_gpus = 1}, {.name = "b", .without_gpus = 1}};
  const List given = {{.name = "a", .slots = 2}, {.name = "b", .slots = 1}};
  const Environment pbs = {{"PBS_NODEFILE", "f"}};
  CHECK(hosts(pbs, "a\nb\n") == open);
  CHECK(hosts(pbs, "a\na\nb\n") == given);
  CHECK(hosts({{"LSB_MCPU_HOSTS", "a 1 b 1"}}, "") == open);
  CHECK(hosts({{"LSB_MCPU_HOSTS", "a 2 b 1"}}, "") == given);
  CHECK(hosts({{"LSB_DJOB_HOSTFILE", "f"}}, "a\nb\n") == open);
  CHECK(hosts({{"PE_HOSTFILE", "f"}}, "a 1 q <NULL>\nb 1 q <NULL>\n") == open);
  CHECK(hosts({{"PE_HOSTFILE", "f"}}, "a 1 q <NULL>\nb 1 q <NULL>\na 1 q <NULL>\n") == given);
  CHECK(hosts({{"HYDRA_HOST_FILE", "f"}}, "a\nb:1\n") == List{open[0], {.name = "b", .slots = 1}});
  CHECK(hosts({{"LSB_MCPU_HOSTS", "a 1 b 0"}}, "") == List{open[0], {.name = "b", .slots = 0}});
}

TEST_CASE("in a Slurm job the slots are the user's only where several tasks on a host were asked for") {
  const auto counted = [](const Environment& more) {
    Environment job = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
    job.insert(more.begin(), more.end());
    const auto found = slurm_allocation(job);
    REQUIRE(found.ok());
    return (*found)->hosts.front().counted;
  };
  CHECK(counted({{"SLURM_TASKS_PER_NODE", "1(x2)"}, {"SLURM_NTASKS", "2"}}));
  CHECK(counted({{"SLURM_TASKS_PER_NODE", "1(x2)"}, {"SLURM_GPUS_ON_NODE", "4"}}));
  CHECK(counted({{"SLURM_JOB_CPUS_PER_NODE", "8(x2)"}}));
  CHECK_FALSE(counted({{"SLURM_TASKS_PER_NODE", "4(x2)"}, {"SLURM_NTASKS", "8"}}));
}

TEST_CASE("each host of a heterogeneous Slurm job is reached in its own component") {
  const auto found = slurm_allocation({{"SLURM_JOB_ID", "7"},
                                       {"SLURM_HET_SIZE", "2"},
                                       {"SLURM_JOB_NODELIST_HET_GROUP_0", "a[1-2]"},
                                       {"SLURM_JOB_NODELIST_HET_GROUP_1", "b1"}});
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  const Allocation& job = **found;
  CHECK_FALSE(job.launch_with_of.contains("a2"));
  REQUIRE(job.launch_with_of.contains("b1"));
  const auto argv = launch_argv(job.launch_with_of.at("b1"), "", "b1", "exec it");
  REQUIRE(argv.ok());
  CHECK(argv->at(1) == "--het-group=1");
  CHECK(std::find(argv->begin(), argv->end(), "--nodelist=b1") != argv->end());
  CHECK(reach_of_named(job, {{.name = "b1"}}, {}).launch_with_of == job.launch_with_of);
}

TEST_CASE("the batch host's GPUs are not those of other components of a heterogeneous Slurm job") {
  Environment job = {{"SLURM_JOB_ID", "7"},
                     {"SLURM_HET_SIZE", "2"},
                     {"SLURM_JOB_NODELIST_HET_GROUP_0", "a[1-2]"},
                     {"SLURM_JOB_NODELIST_HET_GROUP_1", "b1"},
                     {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "1(x2)"},
                     {"SLURM_TASKS_PER_NODE_HET_GROUP_1", "1"},
                     {"SLURM_GPUS_ON_NODE", "4"}};
  const auto slots = [&job] {
    const auto found = slurm_allocation(job);
    REQUIRE(found.ok());
    return (*found)->hosts;
  };
  const std::vector<HostSlots> asked = {{.name = "a1", .slots = 4, .counted = true},
                                        {.name = "a2", .slots = 4, .counted = true},
                                        {.name = "b1", .without_gpus = 1}};
  CHECK(slots() == asked);
  CHECK(
      found_text(**slurm_allocation(job)).find("3 hosts (one per GPU; one per GPU, or one per task without GPUs): ") !=
      std::string::npos);
  job["SLURM_GPUS_PER_NODE_HET_GROUP_1"] = "2";
  CHECK(slots().back() == HostSlots{.name = "b1", .slots = 2, .counted = true});
  job["SLURM_NTASKS_HET_GROUP_1"] = "8";
  job["SLURM_TASKS_PER_NODE_HET_GROUP_1"] = "8";
  CHECK(slots().back() == HostSlots{.name = "b1", .slots = 8});
}

TEST_CASE("the steps of agents are not shaped by what the job was asked for with") {
  Environment job = {{"PATH", "/bin"},
                     {"SLURM_JOB_ID", "7"},
                     {"SLURM_JOB_NODELIST", "n[1-2]"},
                     {"SLURM_CONF", "/c"},
                     {"SLURM_CLUSTER_NAME", "c"},
                     {"A_PER_TASK", "1"},
                     {"SLURM_JOB_NUM_NODES", "2"}};
  const Environment kept = job;
  for (const char* name : {"SLURM_GPUS",
                           "SLURM_GPUS_PER_NODE",
                           "SLURM_GPUS_PER_TASK",
                           "SLURM_GPU_BIND",
                           "SLURM_CPUS_PER_TASK",
                           "SLURM_CPUS_PER_GPU",
                           "SLURM_MEM_PER_CPU",
                           "SLURM_MEM_PER_NODE",
                           "SLURM_TRES_PER_TASK",
                           "SLURM_EXACT",
                           "SLURM_NTASKS",
                           "SLURM_NTASKS_PER_NODE",
                           "SRUN_CPUS_PER_TASK",
                           "SLURM_HINT",
                           "SLURM_LABELIO",
                           "SLURM_EXPORT_ENV",
                           "SLURM_CPUS_PER_TASK_HET_GROUP_1",
                           "SLURM_WORKING_DIR",
                           "SLURM_PARTITION",
                           "SLURM_TIMELIMIT",
                           "SLURM_CPU_BIND",
                           "SLURM_DISTRIBUTION",
                           "SLURM_HOSTFILE",
                           "SLURM_JOB_NAME",
                           "SLURM_PTY_PORT",
                           "SLURM_NEW_IN_A_LATER_VERSION",
                           "SRUN_DEBUG",
                           "SLURMD_DEBUG"}) {
    job[name] = "1";
  }
  CHECK(environment_of_steps(job) == kept);
  for (const char* name : {"SLURM_JOBID", "SLURM_HET_SIZE", "SLURM_JOB_NODELIST_HET_GROUP_1",
                           "SLURM_JOB_ID_HET_GROUP_0", "SLURM_WORKING_CLUSTER", "SLURM_JWT", "SLURM_STEPMGR"}) {
    INFO(name);
    CHECK(environment_of_steps({{name, "1"}}).contains(name));
  }
}

TEST_CASE("srun does not carry what is true on this host only") {
  const Environment here = {{"HOSTNAME", "n1"},        {"CUDA_VISIBLE_DEVICES", "0,1"},
                            {"SLURMD_NODENAME", "n1"}, {"XDG_RUNTIME_DIR", "/run/1"},
                            {"SSH_CONNECTION", "1"},   {"DISPLAY", ":0"}};
  const Environment everywhere = {{"HOME", "/h"}, {"USER", "u"}, {"KRB5CCNAME", "KEYRING:1"}, {"PATH", "/bin"}};
  Environment all = here;
  all.insert(everywhere.begin(), everywhere.end());
  CHECK(environment_of_steps(all) == everywhere);
}

TEST_CASE("hosts that were named inside an allocation are reached as its own, if all are in it") {
  const Allocation slurm{
      .source = "Slurm job 7", .hosts = {{.name = "n1"}, {.name = "n2"}, {.name = "n3"}}, .launch_with = "srun"};
  const std::vector<std::string> own = {"localhost", "login"};
  CHECK(reach_of_named(slurm, {{.name = "n2", .slots = 4}, {.name = "login"}}, own).launch_with == "srun");
  const Reach some = reach_of_named(slurm, {{.name = "n2"}, {.name = "n9"}, {.name = "n1", .user = "me"}}, own);
  CHECK(some.launch_with.empty());
  CHECK(some.note == "found Slurm job 7, but n9,me@n1 are not in it by that name, so distrun reaches all hosts by ssh");
  const Allocation pbs{.source = "PBS job 7", .hosts = slurm.hosts};
  CHECK(reach_of_named(pbs, {{.name = "n9"}}, own).note.empty());
}

TEST_CASE("where agents come by ssh into another scheduler's job, its own way is told") {
  const auto no_file = [](const std::string& path) -> Result<std::string> { return errno_status(path, ENOENT); };
  const auto pbs_nodes = [](const std::string&) -> Result<std::string> { return std::string("a\nb\n"); };
  const auto advice = [](const Environment& job, const ReadFile& files) {
    const auto found = detect_allocation(job, files);
    REQUIRE(found.ok());
    REQUIRE(found->has_value());
    return (*found)->advice;
  };
  const auto in_job = advice({{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "a 2 b 2"}}, no_file);
  CHECK(in_job.ends_with("add --launch-with 'blaunch {host} {agent}'"));
  CHECK(advice({{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "a 2"}}, no_file).empty());
  Environment pbs = {{"PBS_JOBID", "1.s"}, {"PBS_NODEFILE", "f"}};
  // Three programs read it in turn: a shell of the user, distrun, and the shell on the host.
  CHECK(advice(pbs, pbs_nodes).ends_with(R"('ssh {host} pbs_attach -j 1.s sh -c "\"{agent}\""')"));
  const auto argv = launch_argv(R"(ssh {host} pbs_attach -j 1.s sh -c "\"{agent}\"")", "", "b", "exec 'it'");
  REQUIRE(argv.ok());
  CHECK(argv->back() == "\"exec 'it'\"");
  pbs["PBS_VERSION"] = "TORQUE-6.1.2";
  CHECK(advice(pbs, pbs_nodes).empty());
  const Allocation lsf{.source = "LSF job 1", .hosts = {{.name = "a"}, {.name = "b"}}, .advice = in_job};
  CHECK(reach_of_named(lsf, {{.name = "a"}, {.name = "c"}}, {"a"}).note.empty());
  CHECK(reach_of_named(lsf, {{.name = "a"}, {.name = "b", .slots = 2}}, {"a"}).note == "found LSF job 1. " + in_job);
}

TEST_CASE("inside a step that has a part of a Slurm job, all hosts of the job can be named") {
  const auto found = slurm_allocation({{"SLURM_JOB_ID", "7"},
                                       {"SLURM_JOB_NODELIST", "n[1-4]"},
                                       {"SLURM_STEP_ID", "2"},
                                       {"SLURM_STEP_NODELIST", "n3"},
                                       {"SLURM_STEP_NUM_TASKS", "1"}});
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  REQUIRE((*found)->hosts.size() == 1);
  CHECK((*found)->hosts.front().name == "n3");
  CHECK(reach_of_named(**found, {{.name = "n1"}, {.name = "n3"}}, {}).note.empty());
  CHECK_FALSE(reach_of_named(**found, {{.name = "n1", .user = "me"}}, {}).note.empty());
}

TEST_CASE("Slurm's numbers by host") {
  const auto counts = parse_slurm_counts("2(x3),1,16(x2)", "V");
  REQUIRE(counts.ok());
  CHECK(*counts == std::vector<int>{2, 2, 2, 1, 16, 16});
  for (const char* text : {"", ",", "2,", "x", "2(x3", "2(3)", "2(x)", "2(x0)", "0", "-1", "2(x3)1", "99999999999"}) {
    INFO(text);
    CHECK_FALSE(parse_slurm_counts(text, "V").ok());
  }
  CHECK_FALSE(parse_slurm_counts("1(x100000),1(x100000)", "V").ok());
  CHECK(parse_slurm_counts("2(x3),1(y)", "V").status().message().starts_with("V, column 7: '1(y)' is not"));
}

TEST_CASE("where the Kubernetes MPI operator has no ssh, what reaches its pods is told") {
  const ReadFile read = [](const std::string&) { return Result<std::string>("w-0 slots=2\nw-1 slots=2\n"); };
  for (const char* variable : {"OMPI_MCA_orte_default_hostfile", "KUBERNETES_SERVICE_HOST"}) {
    Environment pod = {{variable, "/etc/mpi/hostfile"}, {"OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"}};
    const auto found = detect_allocation(pod, read);
    REQUIRE((found.ok() && found->has_value()));
    CHECK((*found)->advice.starts_with("Add --launch-with '/opt/kube/kubectl exec -i {host} -- sh -c {agent}'"));
    pod["OMPI_MCA_plm_rsh_agent"] = "ssh";
    CHECK((*detect_allocation(pod, read))->advice.empty());
  }
}

TEST_CASE("a long list of hosts is cut in the sentence") {
  Allocation allocation{.source = "X", .slots_are = "one per task"};
  for (int i = 0; i < 200; ++i) allocation.hosts.push_back({.name = "h" + std::to_string(7 * i), .slots = 2});
  const std::string text = found_text(allocation);
  CHECK(text.size() < 300);
  CHECK(text.find("200 hosts and 400 slots (one per task)") != std::string::npos);
  CHECK(text.find("...") != std::string::npos);
}

}  // namespace
}  // namespace distrun::launcher
