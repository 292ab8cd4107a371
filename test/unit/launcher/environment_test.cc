#include "launcher/plan/environment/environment.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>

#include "launcher/plan/launch_plan.h"
#include "launcher/protocol/messages.h"
#include "runtime/base/clock.h"

namespace distrun::launcher {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

JobFacts four_ranks() {
  JobFacts facts;
  for (int rank = 0; rank < 4; ++rank) {
    facts.places.push_back({.rank = rank,
                            .host = rank / 2,
                            .local_rank = rank % 2,
                            .local_size = 2,
                            .cross_rank = rank / 2,
                            .cross_size = 2});
    facts.tf_ports.push_back(static_cast<std::uint16_t>(7000 + rank));
  }
  facts.hosts = {"a", "b"};
  facts.address = {"10.0.0.1", "fd00::2"};
  facts.master_port = 6000;
  facts.jax_port = 6001;
  facts.job_id = "job";
  facts.store = "10.0.0.1:5000";
  return follows(std::move(facts));
}

std::map<std::string, std::string> values(const std::vector<Variable>& variables) {
  std::map<std::string, std::string> out;
  for (const Variable& variable : variables) {
    CHECK_FALSE(variable.why.empty());
    CHECK(out.emplace(variable.name, variable.value).second);  // each name only once
  }
  return out;
}

TEST_CASE("a rank finds what every framework reads") {
  const Binding binding{.threads = 3};
  auto env = values(rank_environment(four_ranks(), {.frameworks = {.horovod = true}}, binding, {}, 3));
  const std::map<std::string, std::string> expected = {
      {"DISTRUN_RANK", "3"},
      {"DISTRUN_SIZE", "4"},
      {"DISTRUN_LOCAL_RANK", "1"},
      {"DISTRUN_LOCAL_SIZE", "2"},
      {"DISTRUN_CROSS_RANK", "1"},
      {"DISTRUN_CROSS_SIZE", "2"},
      {"DISTRUN_HOST", "b"},
      {"DISTRUN_JOB_ID", "job"},
      {"DISTRUN_KEY_FD", "3"},
      {"DISTRUN_STORE", "10.0.0.1:5000"},
      {"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"LOCAL_SIZE", "2"},
      {"NODE_RANK", "1"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "3"},
      {"ROLE_WORLD_SIZE", "4"},
      {"TORCHELASTIC_RUN_ID", "job"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"MASTER_ADDR", "10.0.0.1"},
      {"MASTER_PORT", "6000"},
      {"JAX_COORDINATOR_ADDRESS", "10.0.0.1:6001"},
      {"JAX_NUM_PROCESSES", "4"},
      {"JAX_PROCESS_COUNT", "4"},
      {"JAX_PROCESS_ID", "3"},
      {"JAX_PROCESS_INDEX", "3"},
      {"KERAS_DISTRIBUTION_JOB_ADDRESSES", "10.0.0.1:6001"},
      {"KERAS_DISTRIBUTION_NUM_PROCESSES", "4"},
      {"KERAS_DISTRIBUTION_PROCESS_ID", "3"},
      {"HOROVOD_RANK", "3"},
      {"HOROVOD_LOCAL_SIZE", "2"},
      {"HOROVOD_HOSTNAME", "b"},
      {"OMP_NUM_THREADS", "3"},
      {"PYTHONUNBUFFERED", "1"},
      {"PYTHONFAULTHANDLER", "1"},
      {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
      {"TF_CONFIG", R"(, "task": {"type": "worker", "index": 3}})"},
  };
  for (const auto& [name, value] : expected) CHECK(std::pair(name, env[name]) == std::pair(name, value));
  // With this variable, torch would wait for another process to listen at MASTER_PORT.
  CHECK_FALSE(env.contains("TORCHELASTIC_USE_AGENT_STORE"));
  CHECK(tf_cluster(four_ranks()) ==
        R"({"cluster": {"worker": ["10.0.0.1:7000", "10.0.0.1:7001", "[fd00::2]:7002", "[fd00::2]:7003"]})");
}

TEST_CASE("MASTER_ADDR may be a name in place of an IPv6 address, and the other variables have the address") {
  JobFacts facts = four_ranks();
  facts.address[0] = "fd00::1";
  CHECK(values(rank_environment(facts, {}, {}, {}, 3))["MASTER_ADDR"] == "fd00::1");
  facts.master_name = "a.site";
  auto env = values(rank_environment(facts, {}, {}, {}, 3));
  CHECK(env["MASTER_ADDR"] == "a.site");
  CHECK(env["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:6001");
}

TEST_CASE("NCCL, Gloo and TensorPipe are told the interface, NCCL not as the beginning of a name") {
  JobFacts facts = four_ranks();
  facts.interface = {"eth1", "eth1"};
  auto env = values(rank_environment(facts, {}, {}, {}, 0));
  CHECK(env["NCCL_SOCKET_IFNAME"] == "=eth1");
  CHECK(env["GLOO_SOCKET_IFNAME"] == "eth1");
  CHECK(env["TP_SOCKET_IFNAME"] == "eth1");
  CHECK_FALSE(
      values(rank_environment(facts, {}, {}, {{"NCCL_SOCKET_IFNAME", "ib"}}, 0)).contains("NCCL_SOCKET_IFNAME"));
}

TEST_CASE("gRPC is told to go to the job's hosts without the user's proxy, and everywhere else as before") {
  const auto no_proxy_of = [](const Environment& base) {
    const auto variable = no_grpc_proxy(four_ranks(), base);
    return variable ? variable->value : "nothing";
  };
  const std::string hosts = "10.0.0.1,127.0.0.1,a,b,fd00::2,localhost";
  CHECK(no_proxy_of({{"http_proxy", "http://p:3128"}}) == hosts);
  CHECK(no_proxy_of({{"https_proxy", "p"}, {"no_proxy", ".site,10.1.0.0/16"}}) == ".site,10.1.0.0/16," + hosts);
  CHECK(no_proxy_of({{"grpc_proxy", "p"}, {"no_proxy", ""}}) == hosts);
  CHECK(no_proxy_of({{"http_proxy", "p"}, {"no_proxy", "its"}, {"no_grpc_proxy", "mine"}}).starts_with("mine,"));
  CHECK(no_proxy_of({{"http_proxy", ""}, {"HTTP_PROXY", "p"}, {"no_proxy", "x"}}) == "nothing");
  JobFacts large = four_ranks();
  for (int host = 0; host < 20'000; ++host) large.hosts.push_back("node" + std::to_string(100'000 + host));
  CHECK(no_grpc_proxy(large, {{"http_proxy", "p"}})->value == "10.0.0.1,127.0.0.1,localhost");
}

TEST_CASE("the plan has no_grpc_proxy once, for all ranks, and shows it") {
  PlanRequest request;
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 1}, {.name = "b", .slots = 1}}});
  const std::vector<HostFacts> facts = {{.address = "A"}, {.address = "B"}};
  CHECK(make_plan(request, facts)->no_grpc_proxy.empty());
  request.base = base_environment({{"http_proxy", "p"}}, {});
  const auto plan = make_plan(request, facts);
  CHECK(plan->no_grpc_proxy == "127.0.0.1,A,B,a,b,localhost");
  REQUIRE(plan->given.size() == 1);
  CHECK(plan->given[0].name == "no_grpc_proxy");
  CHECK(plan->given[0].why == "gRPC (TensorFlow, JAX) goes to the job's hosts without the proxy of http_proxy");
}

TEST_CASE("distrun.tensorflow is told to leave TF_CONFIG only where a strategy was announced") {
  CHECK_FALSE(values(rank_environment(four_ranks(), {}, {}, {}, 0)).contains("DISTRUN_TF"));
  CHECK(values(rank_environment(four_ranks(), {.frameworks = {.tf = true}}, {}, {}, 0))["DISTRUN_TF"] == "1");
}

TEST_CASE("what the user has set stays, what he has not asked for is absent") {
  const Environment user = {{"OMP_NUM_THREADS", "7"}, {"PYTHONUNBUFFERED", "0"}};
  JobFacts facts = four_ranks();
  facts.tf_config = false;
  const auto env = values(rank_environment(facts, {}, {}, user, 0));
  for (const char* name :
       {"OMP_NUM_THREADS", "PYTHONUNBUFFERED", "TF_CONFIG", "HOROVOD_RANK", "CUDA_VISIBLE_DEVICES"}) {
    CHECK_FALSE(env.contains(name));
  }
}

TEST_CASE("--gpu-visibility one shows a rank its own GPU") {
  Binding binding{.gpu = 1, .gpus = 1, .gpu_name = "GPU-b"};
  auto env =
      values(rank_environment(four_ranks(), {.placement = {.gpu_visibility = GpuVisibility::kOne}}, binding, {}, 0));
  CHECK(env["CUDA_VISIBLE_DEVICES"] == "GPU-b");
  env = values(rank_environment(four_ranks(), {}, binding, {}, 0));
  CHECK_FALSE(env.contains("CUDA_VISIBLE_DEVICES"));
  binding.own_gpu_only = true;
  CHECK(values(rank_environment(four_ranks(), {}, binding, {}, 0))["CUDA_VISIBLE_DEVICES"] == "GPU-b");
}

TEST_CASE("TF_CONFIG with roles") {
  const auto roles = parse_tf_roles("chief=1,worker=1,ps=1,evaluator", 4);
  REQUIRE(roles.ok());
  JobFacts facts = four_ranks();
  facts.tf_roles = *roles;
  CHECK(tf_cluster(facts) + tf_task(facts, 3) ==
        R"({"cluster": {"chief": ["10.0.0.1:7000"], "ps": ["[fd00::2]:7002"], "worker": ["10.0.0.1:7001"]}, )"
        R"("task": {"type": "evaluator", "index": 0}})");
}

TEST_CASE("a rank is told its own GPUs, numbered among those that it sees") {
  const Binding two{.gpu = 2, .gpus = 2, .gpu_name = "GPU-c,GPU-d"};
  CHECK(values(rank_environment(four_ranks(), {}, two, {}, 1))["DISTRUN_GPUS"] == "2,3");
  CHECK(values(rank_environment(four_ranks(), {.placement = {.gpu_visibility = GpuVisibility::kOne}}, two, {},
                                1))["DISTRUN_GPUS"] == "0,1");
  CHECK_FALSE(values(rank_environment(four_ranks(), {}, {}, {}, 1)).contains("DISTRUN_GPUS"));
}

TEST_CASE("JAX finds its coordinator and this rank's GPUs") {
  const Binding two{.gpu = 2, .gpus = 2, .gpu_name = "GPU-c,GPU-d"};
  auto env = values(rank_environment(four_ranks(), {}, two, {}, 0));
  CHECK(env["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:6001");
  // With this variable, JAX would listen at this port even if a script gives another address.
  CHECK_FALSE(env.contains("JAX_COORDINATOR_BIND_ADDRESS"));
  CHECK(env["JAX_LOCAL_DEVICE_IDS"] == "2,3");
  env = values(rank_environment(four_ranks(), {.placement = {.gpu_visibility = GpuVisibility::kOne}}, two, {}, 1));
  CHECK(env["JAX_LOCAL_DEVICE_IDS"] == "0,1");
  CHECK_FALSE(values(rank_environment(four_ranks(), {}, {}, {}, 1)).contains("JAX_LOCAL_DEVICE_IDS"));
}

TEST_CASE("variables of other launchers on request") {
  auto env = values(rank_environment(four_ranks(), {.frameworks = {.mimic = Mimic::kOpenMpi}}, {}, {}, 3));
  CHECK(env["OMPI_COMM_WORLD_RANK"] == "3");
  CHECK(env["OMPI_COMM_WORLD_SIZE"] == "4");
  CHECK(env["OMPI_COMM_WORLD_LOCAL_RANK"] == "1");
  CHECK(env["OMPI_MCA_orte_hnp_uri"].ends_with(".0;tcp://10.0.0.1:6001"));
  env =
      values(rank_environment(four_ranks(), {.frameworks = {.mimic = Mimic::kSlurm}}, {}, {{"SLURM_JOB_ID", "77"}}, 3));
  const std::map<std::string, std::string> expected = {
      {"SLURM_JOB_ID", "77"},         {"SLURM_NTASKS", "4"},         {"SLURM_PROCID", "3"},
      {"SLURM_LOCALID", "1"},         {"SLURM_NODEID", "1"},         {"SLURM_STEP_NODELIST", "a,b"},
      {"SLURM_STEP_NUM_NODES", "2"},  {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
      {"SLURM_JOB_NODELIST", "a,b"},  {"SLURM_NODELIST", "a,b"},     {"SLURM_NPROCS", "4"},
      {"SLURM_JOB_NUM_NODES", "2"},   {"SLURM_NNODES", "2"},         {"SLURM_TASKS_PER_NODE", "2(x2)"},
      {"SLURM_NTASKS_PER_NODE", "2"},
  };
  for (const auto& [name, value] : expected) CHECK(std::pair(name, env[name]) == std::pair(name, value));
  CHECK_FALSE(env.contains("OMPI_COMM_WORLD_RANK"));
  JobFacts uneven = four_ranks();
  uneven.slurm_tasks = "3,1";
  CHECK_FALSE(values(rank_environment(uneven, {.frameworks = {.mimic = Mimic::kSlurm}}, {}, {}, 3))
                  .contains("SLURM_NTASKS_PER_NODE"));
  JobFacts v6 = four_ranks();
  v6.address[0] = "fd00::1";
  CHECK(values(rank_environment(v6, {.frameworks = {.mimic = Mimic::kOpenMpi}}, {}, {}, 0))["OMPI_MCA_orte_hnp_uri"]
            .ends_with(".0;tcp6://[fd00::1]:6001"));
}

TEST_CASE("variables of an outer launcher are taken away unless asked for") {
  const Environment user = {{"PATH", "/bin"},
                            {"PMIX_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"SLURM_PROCID", "3"},
                            {"SLURM_STEP_ID", "1"},
                            {"SLURM_JOB_ID", "9"},
                            // With it and without a rank, each process would act as the first of four.
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_NPROCS", "4"},
                            {"MINE", "x"},
                            {"DISTRUN_RANK", "5"},
                            {"DISTRUN_BACKEND", "tcp"},
                            // From torchrun: with it, torch would wait for torchrun's store.
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const BaseEnvironment usual = base_environment(user, {});
  CHECK(usual.variables ==
        Environment{{"PATH", "/bin"}, {"SLURM_JOB_ID", "9"}, {"MINE", "x"}, {"DISTRUN_BACKEND", "tcp"}});
  CHECK(usual.removed == std::vector<std::string>{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_NPROCS", "SLURM_NTASKS",
                                                  "SLURM_PROCID", "SLURM_STEP_ID", "TORCHELASTIC_USE_AGENT_STORE"});
  CHECK(base_environment(user, {.mode = EnvMode::kAll}).variables.contains("PMIX_RANK"));
  CHECK_FALSE(base_environment(user, {.mode = EnvMode::kAll}).variables.contains("DISTRUN_RANK"));
  CHECK(base_environment(user, {.forwarded = {"PMIX_RANK"}}).variables.contains("PMIX_RANK"));
}

TEST_CASE("--env none passes on what is named") {
  const Environment user = {{"PATH", "/bin"}, {"MINE", "x"}, {"OTHER", "y"}, {"DISTRUN_LOG_LEVEL", "info"}};
  const BaseEnvironment base =
      base_environment(user, {.mode = EnvMode::kNone, .forwarded = {"MINE", "NEW=a=b", "ABSENT"}},
                       {{"FILE", "1"}, {"NEW", "overridden"}});
  CHECK(base.variables ==
        Environment{{"PATH", "/bin"}, {"MINE", "x"}, {"NEW", "a=b"}, {"FILE", "1"}, {"DISTRUN_LOG_LEVEL", "info"}});
  REQUIRE(base.notes.size() == 1);
  CHECK(base.notes[0].find("ABSENT") != std::string::npos);
}

TEST_CASE("what differs from the user's own variables is known with the reason") {
  const Environment user = {{"SAME", "1"}, {"OTHER", "1"}, {"DISTRUN_LOG_LEVEL", "info"}};
  const BaseEnvironment base = base_environment(user,
                                                {.forwarded = {"SAME=1", "OTHER=2", "FILE=x"},
                                                 .settings = {{"backend", "tcp"}},
                                                 .file_settings = {{"log_level", "debug"}, {"control", "tcp"}}},
                                                {{"FILE", "f"}, {"MORE", "m"}});
  CHECK(base.given == std::map<std::string, std::string>{{"OTHER", "-x"},
                                                         {"FILE", "-x"},
                                                         {"MORE", "--env-file"},
                                                         {"DISTRUN_BACKEND", "flag"},
                                                         {"DISTRUN_CONTROL", "config file"}});
  CHECK(base.variables.at("DISTRUN_LOG_LEVEL") == "info");
  CHECK(base.variables.at("DISTRUN_CONTROL") == "tcp");
}

TEST_CASE("what is true on one host only is left to each host") {
  const auto own = [](const EnvironmentOptions& options, const std::string& name, const Pairs& from_file = {}) {
    const auto names = base_environment({{"DISPLAY", ":0"}, {"HOME", "/h"}}, options, from_file).host_own;
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  CHECK(own({}, "HOME"));
  CHECK(own({}, "SSH_CONNECTION"));
  CHECK(own({}, "ROCR_VISIBLE_DEVICES"));
  CHECK(own({}, "TMPDIR"));
  CHECK_FALSE(own({.forwarded = {"TMPDIR"}}, "TMPDIR"));
  CHECK_FALSE(own({}, "PATH"));
  CHECK_FALSE(own({.mode = EnvMode::kAll}, "HOME"));
  CHECK(own({.mode = EnvMode::kNone}, "HOME"));
  CHECK_FALSE(own({.mode = EnvMode::kNone}, "DISPLAY"));
  CHECK_FALSE(own({.forwarded = {"DISPLAY"}}, "DISPLAY"));
  CHECK_FALSE(own({.forwarded = {"HOME=/other"}}, "HOME"));
  CHECK_FALSE(own({}, "HOME", {{"HOME", "/other"}}));
  CHECK(base_environment({{"DISPLAY", ":0"}}, {}).variables.contains("DISPLAY"));
}

TEST_CASE("a plan survives the wire, and broken bytes are refused") {
  const JobCommon common{.command = {"python", "a b", ""},
                         .script = "x.py",
                         .choice = "the first Python in PATH",
                         .cwd = "/w",
                         .umask = 077,
                         .open_files = 1024,
                         .environment = {{"A", "=\n"}},
                         .host_own = {"HOME"}};
  const auto common_bytes = net::encoded(common).take();
  const auto common_again = net::decoded<JobCommon>(common_bytes, "the job");
  REQUIRE(common_again.ok());
  CHECK(*common_again == common);
  const HostPlan plan{
      .host = "h",
      .ranks = {{.rank = 2, .local_rank = 1, .cpus = {0, 3}, .environment = {{"RANK", "2"}}, .tf_task = "t"}}};
  const auto bytes = net::encoded(plan).take();
  const auto again = net::decoded<HostPlan>(bytes, "the host's plan");
  REQUIRE(again.ok());
  CHECK(*again == plan);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(net::decoded<HostPlan>(std::span(bytes).first(size), "the host's plan").ok());
  }
  for (std::size_t size = 0; size < common_bytes.size(); ++size) {
    CHECK_FALSE(net::decoded<JobCommon>(std::span(common_bytes).first(size), "the job").ok());
  }
}

TEST_CASE("make_plan gives each host its ranks and each rank its ports") {
  PlanRequest request;
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 1}, {.name = "b", .slots = 2}}});
  CHECK(ports_needed(request, 0) == 3);
  CHECK(ports_needed(request, 1) == 2);
  const std::vector<HostFacts> facts = {{.ports = {1, 2, 3}, .address = "A"}, {.ports = {4, 5}, .address = "B"}};
  const auto plan = make_plan(request, facts);
  REQUIRE(plan.ok());
  REQUIRE(plan->hosts.size() == 2);
  CHECK(plan->hosts[1].ranks.size() == 2);
  auto env = values(plan->variables[2]);
  CHECK(env["MASTER_PORT"] == "2");
  CHECK(env["JAX_COORDINATOR_ADDRESS"] == "A:3");
  CHECK(plan->tf_cluster.find(R"(["A:1", "B:4", "B:5"])") != std::string::npos);
  CHECK(plan->hosts[1].ranks[1].tf_task == env["TF_CONFIG"]);
  const auto& variables = plan->variables[2];
  const auto tf = std::find_if(variables.begin(), variables.end(), [](const auto& v) { return v.name == "TF_CONFIG"; });
  CHECK(value_in(*plan, *tf) == plan->tf_cluster + env["TF_CONFIG"]);
}

TEST_CASE("a job of one rank has a TF_CONFIG where it is asked for only") {
  PlanRequest request;
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 1}}});
  const auto has_tf_config = [&request] {
    const auto plan = make_plan(request, {HostFacts{.ports = {1, 2, 3}, .address = "A"}});
    const bool there = values(plan->variables[0]).contains("TF_CONFIG");
    CHECK(there != plan->tf_cluster.empty());
    CHECK(there != plan->hosts[0].ranks[0].tf_task.empty());
    return there;
  };
  CHECK_FALSE(has_tf_config());
  CHECK(ports_needed(request, 0) == 2);
  request.options.frameworks.tf = true;
  CHECK(has_tf_config());
  CHECK(ports_needed(request, 0) == 3);
  request.options.frameworks = {.tf_roles = "worker=1"};
  request.tf_roles = *parse_tf_roles("worker=1", 1);
  CHECK(has_tf_config());
  request.options.frameworks = {};
  request.tf_roles.clear();
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 2}}});
  CHECK(has_tf_config());
}

TEST_CASE("the TF_CONFIG of a job is not handed on to another job that one of its ranks starts") {
  const Environment rank = {{"DISTRUN_RANK", "1"}, {"TF_CONFIG", "{}"}};
  CHECK(base_environment(rank, {}).variables.empty());
  CHECK(base_environment(rank, {}).removed == std::vector<std::string>{"TF_CONFIG"});
  CHECK(base_environment(rank, {.forwarded = {"TF_CONFIG"}}).variables.contains("TF_CONFIG"));
  CHECK(base_environment({{"TF_CONFIG", "{}"}}, {}).variables.contains("TF_CONFIG"));
}

TEST_CASE("of what -x names the port for PyTorch counts, and what has no effect is told") {
  PlanRequest request;
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 2}}});
  const auto made = [&](const Environment& user, const EnvironmentOptions& options, const Pairs& from_file = {}) {
    request.base = base_environment(user, options, from_file);
    const auto plan = make_plan(request, {HostFacts{.ports = {1, 2, 3, 4}, .address = "A"}});
    REQUIRE(plan.ok());
    return *plan;
  };
  const auto port = [](const LaunchPlan& plan) { return values(plan.variables[1])["MASTER_PORT"]; };
  const Environment shell = {{"MASTER_PORT", "29500"}, {"RANK", "7"}};
  CHECK(port(made(shell, {})) == "3");
  CHECK(made(shell, {}).hints.empty());
  CHECK(port(made(shell, {.forwarded = {"MASTER_PORT"}})) == "29500");
  CHECK(made(shell, {.forwarded = {"MASTER_PORT"}}).hints.empty());
  CHECK(port(made({}, {}, {{"MASTER_PORT", "29501"}})) == "29501");
  const LaunchPlan plan = made(shell, {.forwarded = {"MASTER_ADDR=h", "RANK", "MINE=1"}}, {{"TF_CONFIG", "{}"}});
  REQUIRE(plan.hints.size() == 1);
  CHECK(plan.hints[0] ==
        "MASTER_ADDR, RANK, TF_CONFIG of -x or --env-file have no effect: distrun sets a value for each rank. "
        "To set TF_CONFIG yourself, add --no-tf-config");
  for (const char* bad : {"MASTER_PORT=0", "MASTER_PORT=x", "MASTER_PORT=", "MASTER_PORT=65536"}) {
    CHECK_FALSE(named_master_port(base_environment({}, {.forwarded = {bad}})).ok());
  }
}

// Code that needs quadratic time in the number of hosts would exceed the test's time limit.
TEST_CASE("a plan for thirty thousand hosts is made, whatever launcher is mimicked") {
  PlanRequest request;
  std::vector<HostSlots> hosts;
  for (int host = 0; host < 30'000; ++host) hosts.push_back({.name = "n" + std::to_string(host), .slots = 1});
  request.assignment = *assign({.hosts = hosts});
  request.options.frameworks = {.tf_config = false, .mimic = Mimic::kSlurm};
  const std::vector<HostFacts> facts(hosts.size(), HostFacts{.ports = {1, 2}, .address = "10.0.0.1"});
  const auto plan = make_plan(request, facts);
  REQUIRE(plan.ok());
  auto env = values(plan->variables[29'999]);
  CHECK(env["SLURM_STEP_NODELIST"] == "n[0-29999]");
  CHECK(env["NODE_RANK"] == "29999");
  CHECK(env["GROUP_WORLD_SIZE"] == "30000");
}

TEST_CASE("a thousand ranks on one host fit into the order to start them, many times over") {
  PlanRequest request;
  request.assignment = *assign({.hosts = {{.name = "a", .slots = 1000}}});
  const auto plan =
      make_plan(request, {HostFacts{.ports = std::vector<std::uint16_t>(1002, 50000), .address = "127.0.0.1"}});
  REQUIRE(plan.ok());
  CHECK(plan->tf_cluster.size() > 18000);
  CHECK(encode(Start{.plan = plan->hosts[0], .tf_cluster = plan->tf_cluster}).size() < kMaxFramePayload / 8);
}

}  // namespace
}  // namespace distrun::launcher
