// Ranks that MPI's launcher or Slurm starts as tasks. Each task has different GPUs. The tests cover how they are bound.
#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/launch_plan.h"
#include "launcher/plan/place/bind.h"
#include "launcher/plan/schedulers/mpi.h"

namespace distrun::launcher {
namespace {

// Two nodes of two cores, with two GPUs near each node.
Topology four_gpus() {
  Topology out;
  for (int id = 0; id < 4; ++id) out.cpus.push_back({.id = id, .core = id, .node = id / 2});
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    out.gpus.push_back({.minor = i, .bus = "0000:0" + number, .uuid = "GPU-" + number, .model = "X", .node = i / 2});
  }
  return out;
}

// In a step with ConstrainDevices, a task can open only its own GPU, which has the number 0.
Topology only(std::size_t gpu) {
  Topology out = four_gpus();
  out.gpus = {out.gpus[gpu]};
  out.visible_devices = "0";
  return out;
}

Topology naming(const std::string& list) {
  Topology out = four_gpus();
  out.visible_devices = list;
  return out;
}

Result<LaunchPlan> plan_of_tasks(const std::vector<Topology>& tasks, int gpus_per_rank = 0,
                                 BindTo bind_to = BindTo::kAuto) {
  PlanRequest request;
  request.assignment = one_agent_per_rank(*assign({.hosts = {{.name = "h", .slots = static_cast<int>(tasks.size())}}}));
  request.options.placement = {.bind_to = bind_to, .gpus_per_rank = gpus_per_rank};
  std::vector<HostFacts> facts;
  for (const Topology& topology : tasks) facts.push_back({.topology = topology, .ports = {1, 2, 3}, .address = "A"});
  return make_plan(request, facts);
}

TEST_CASE("a task's rank is bound to the GPU that the task was given, which it need not share", "[launcher]") {
  for (const std::vector<Topology>& tasks :
       {std::vector{only(2), only(0)}, std::vector{naming("2"), naming("0")}, std::vector{naming("GPU-2"), only(0)}}) {
    for (const int each : {0, 1}) {
      const auto plan = plan_of_tasks(tasks, each);
      REQUIRE(plan.ok());
      const std::vector<Binding>& bound = plan->bindings;
      for (const Binding& binding : bound) {
        CHECK(binding.gpu == 0);  // among the GPUs that it sees
        CHECK(binding.gpu_reason == "number 0 of 1 GPU of its task");
        CHECK(binding.threads == 2);
      }
      CHECK(bound[0].cpus == std::vector<int>{2, 3});
      CHECK(bound[1].cpus == std::vector<int>{0, 1});
    }
  }
}

TEST_CASE("tasks with several GPUs each begin with their first one", "[launcher]") {
  const std::vector<Topology> tasks = {naming("0,1"), naming("2,3")};
  for (const int each : {0, 2}) {
    const auto plan = plan_of_tasks(tasks, each);
    REQUIRE(plan.ok());
    CHECK(plan->bindings[1].gpu == 0);
    CHECK(plan->bindings[1].gpu_name == (each == 0 ? "2" : "2,3"));
  }
  CHECK(plan_of_tasks(tasks, 3).status().message().find(
            "1 rank needs 3 GPUs and a rank's task has 2 (CUDA_VISIBLE_DEVICES=") != std::string::npos);
}

TEST_CASE("tasks that see the same GPUs share them out by local rank, as ranks of one agent do", "[launcher]") {
  const std::vector<Topology> tasks(4, four_gpus());
  const auto plan = plan_of_tasks(tasks, 1);
  REQUIRE(plan.ok());
  const auto bound = bind_ranks(four_gpus(), 4, {.gpus_per_rank = 1});
  REQUIRE(bound.ok());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(plan->bindings[rank].gpu == static_cast<int>(rank));
    CHECK(binding_text(plan->bindings[rank]) == binding_text((*bound)[rank]));
  }
  // Two GPUs for the tasks of each socket.
  const auto paired = plan_of_tasks({naming("0,1"), naming("0,1"), naming("2,3"), naming("2,3")}, 1);
  REQUIRE(paired.ok());
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(paired->bindings[rank].gpu_name == std::to_string(rank));
  CHECK_FALSE(plan_of_tasks({only(1), only(1)}, 1).ok());
}

TEST_CASE("cores near tasks' GPUs are given out once", "[launcher]") {
  const auto plan = plan_of_tasks({only(0), only(1), only(2), only(3)}, 0, BindTo::kCore);
  REQUIRE(plan.ok());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(plan->bindings[rank].cpus == std::vector<int>{static_cast<int>(rank)});
  }
  const auto without = plan_of_tasks({only(0), naming("")});
  REQUIRE(without.ok());
  CHECK(without->bindings[1].gpu == -1);
  CHECK(without->bindings[1].gpu_reason == "its task has no GPU");
  CHECK(plan_of_tasks({only(0), naming("")}, 0, BindTo::kGpu).status().message().find("a rank's task shows no GPU") !=
        std::string::npos);
}

}  // namespace
}  // namespace distrun::launcher
