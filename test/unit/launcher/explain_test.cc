// --explain for people.
#include "launcher/cli/explain.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

namespace distrun::launcher {
namespace {

// As many hosts as needed, with `per_host` ranks on each, and `cpus` CPUs for each rank.
LaunchPlan plan_of(int ranks, int per_host, int cpus) {
  LaunchPlan plan;
  for (int rank = 0; rank < ranks; ++rank) {
    const int local = rank % per_host;
    if (local == 0) plan.host_names.push_back("h" + std::to_string(rank / per_host + 1));
    plan.places.push_back({.host = rank / per_host, .local_rank = local});
    Binding binding{.gpu = local, .gpus = 1, .gpu_name = "GPU-" + std::to_string(rank), .gpu_model = "A100"};
    for (int i = 0; i < cpus; ++i) binding.cpus.push_back(local * cpus + i);
    plan.bindings.push_back(binding);
    std::vector<Variable>& variables = plan.variables.emplace_back();
    for (int i = 0; i < 12; ++i) {
      variables.push_back({.name = "SHARED_" + std::to_string(i), .value = "1", .why = "the runtime"});
    }
    variables.push_back({.name = "RANK", .value = std::to_string(rank), .why = "PyTorch"});
    variables.push_back({.name = "TF_CONFIG", .value = std::string(2000, 'x') + std::to_string(rank), .why = "TF"});
  }
  plan.reasons = {"one reason"};
  return plan;
}

auto lines_in(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_CASE("a plan of 64 ranks has at most 40 lines, none of them long") {
  for (const int per_host : {64, 8, 1}) {
    for (const int cpus : {0, 2}) {
      const std::string text = explain_text(plan_of(64, per_host, cpus), {"train.py"});
      CAPTURE(text);
      CHECK(lines_in(text) <= 40);
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        CHECK(end - at <= 100);
        at = end + 1;
      }
    }
  }
}

TEST_CASE("equal ranks and hosts share a line") {
  const std::string text = explain_text(plan_of(64, 8, 2), {"train.py"});
  CHECK(text.find("  ranks  host      local  CPUs          threads  GPU\n"
                  "  0-63   h1 to h8  0-7    0-15, 2 each  1        0-7, 1 each A100\n") != std::string::npos);
  CHECK(text.find("  the runtime: SHARED_0=1 SHARED_1=1 ") != std::string::npos);
  CHECK(text.find("here that of rank 0 (--explain=json has all):\n  PyTorch: RANK=0\n") != std::string::npos);
  LaunchPlan plan = plan_of(64, 8, 2);
  plan.bindings[63].threads = 4;
  CHECK(explain_text(plan, {"x"}).find("\n  63 ") != std::string::npos);
}

TEST_CASE("a plan in which nothing is equal has at most 40 lines, and each part says what is missing") {
  LaunchPlan plan = plan_of(64, 1, 2);
  for (int rank = 0; rank < 64; ++rank) {
    plan.bindings[static_cast<std::size_t>(rank)].threads = rank + 1;
    plan.bindings[static_cast<std::size_t>(rank)].cpu_reason = "cores of " + std::to_string(rank);
    for (int i = 0; i < 20; ++i) {
      const std::string number = std::to_string(i);
      plan.variables[static_cast<std::size_t>(rank)].push_back(
          {.name = "OWN_" + number, .value = std::to_string(rank), .why = "reason " + number});
    }
  }
  plan.hints = {"add --tf"};
  const std::string text = explain_text(plan, {"train.py"}, "The job could not start: no script");
  CAPTURE(text);
  CHECK(lines_in(text) <= 40);
  CHECK(text.find("Nothing is started.\nThe job could not start: no script.\n") != std::string::npos);
  CHECK(text.find("  hint: add --tf\n") != std::string::npos);
  CHECK(text.find(" more lines (--explain=json has all)\n") != std::string::npos);
  for (const char* heading : {"\nWhere:\n", "\nWhy:\n", "\nEnvironment of all ranks", "\nEnvironment that differs"}) {
    CHECK(text.find(heading) != std::string::npos);
  }
}

TEST_CASE("of hosts that were not asked, cores and GPUs are not known") {
  LaunchPlan plan = plan_of(4, 2, 1);
  for (const std::size_t rank : {2U, 3U}) plan.bindings[rank] = {.known = false, .threads = 0};
  plan.bindings[0].cpu_reason = plan.bindings[1].cpu_reason = "a reason";
  const std::string text = explain_text(plan, {"x"});
  CHECK(text.find("  2     h2    0      ?     ?        ?\n") != std::string::npos);
  CHECK(text.find("  ranks 2-3, cores and GPU: not known, because the host is asked when the job starts\n") !=
        std::string::npos);
  CHECK(text.find("  ranks 0-1, cores: a reason\n") != std::string::npos);
  LaunchPlan large = plan_of(64, 8, 1);
  for (Binding& binding : large.bindings) binding = {.known = false, .threads = 0};
  CHECK(explain_text(large, {"x"}).find("  0-63   h1 to h8  0-7    ?     ?        ?\n") != std::string::npos);
  CHECK(explain_json(plan, {"x"}).find("\"threads\": null") != std::string::npos);
}

TEST_CASE("ranks that alternate between hosts are cut, and say so") {
  LaunchPlan plan = plan_of(64, 8, 0);
  for (int rank = 0; rank < 64; ++rank) {
    plan.places[static_cast<std::size_t>(rank)] = {.host = rank % 8, .local_rank = rank / 8};
    plan.bindings[static_cast<std::size_t>(rank)].gpu = rank / 8;
  }
  const std::string text = explain_text(plan, {"x"});
  CHECK(lines_in(text) <= 40);
  CHECK(text.find("h1 to h8") != std::string::npos);
}

TEST_CASE("a small plan shows each rank, and what differs once") {
  const std::string text = explain_text(plan_of(4, 4, 1), {"train.py"});
  for (int rank = 0; rank < 4; ++rank) CHECK(text.find("\n  " + std::to_string(rank) + "     h1") != std::string::npos);
  CHECK(text.find("  SHARED_0=1    the runtime\n") != std::string::npos);
  CHECK(text.find("  RANK=0    PyTorch\n") != std::string::npos);
  CHECK(text.find("RANK=1") == std::string::npos);
}

}  // namespace
}  // namespace distrun::launcher
