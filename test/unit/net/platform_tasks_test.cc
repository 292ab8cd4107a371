#include "runtime/net/launchers/platform_tasks.h"

#include <catch2/catch_test_macros.hpp>

namespace distrun::net {
namespace {

std::string tf_config(const std::string& cluster, const std::string& type) {
  return R"({"cluster": {)" + cluster + R"(}, "task": {"type": ")" + type +
         R"(", "index": 0}, "environment": "cloud"})";
}

const char* const kCluster =
    R"("chief": ["h0:2222"], "worker": ["h1:2222", "h2:2222"], "ps": ["h3:2222"], "evaluator": ["h4:2222"])";

int count(const char* variable, const std::string& text) {
  const auto tasks = platform_tasks({{variable, text}});
  if (!tasks) return 0;
  CHECK(tasks->variable == variable);
  return tasks->count;
}

TEST_CASE("TF_CONFIG names those that train", "[net]") {
  CHECK(count("TF_CONFIG", tf_config(kCluster, "worker")) == 3);
  CHECK(count("TF_CONFIG", tf_config(kCluster, "chief")) == 3);
  CHECK(count("TF_CONFIG", tf_config(R"("master": ["h0:1"], "worker": ["h1:1"])", "master")) == 2);
  CHECK(count("TF_CONFIG", tf_config(R"("worker": {"0": "h1:1", "3": "h2:1"})", "worker")) == 2);
}

TEST_CASE("a TF_CONFIG of one, and tasks that train with nobody", "[net]") {
  CHECK(count("TF_CONFIG", tf_config(R"("worker": ["h1:1"], "ps": ["h2:1", "h3:1"])", "worker")) == 0);
  CHECK(count("TF_CONFIG", tf_config(R"("chief": ["h1:1"])", "chief")) == 0);
  CHECK(count("TF_CONFIG", tf_config(kCluster, "ps")) == 0);
  CHECK(count("TF_CONFIG", tf_config(kCluster, "evaluator")) == 0);
  CHECK(count("TF_CONFIG", std::string(R"({"cluster": {)") + kCluster + "}}") == 0);
}

TEST_CASE("where the count cannot be told there is none", "[net]") {
  for (const char* text :
       {"", "{}", "[]", "17", "null", "{\"cluster\"", R"({"cluster": 3, "task": {"type": "worker"}})",
        R"({"cluster": {"worker": "h1:1,h2:1"}, "task": {"type": "worker"}})",
        R"({"sparseCluster": {"worker": {"1": "h1:1"}}, "task": {"type": "worker", "index": 1}})",
        R"({"cluster": {"worker": ["h1:1", "h2:1"]}, "task": "worker"})"}) {
    INFO(text);
    CHECK(count("TF_CONFIG", text) == 0);
  }
  for (const char* text : {"", "1", "two", "-2", "2 ", "99999999999999999999"}) {
    INFO(text);
    CHECK(count("JAX_NUM_PROCESSES", text) == 0);
    CHECK(count("AWS_BATCH_JOB_NUM_NODES", text) == 0);
  }
  for (const char* text : {"", R"(["algo-1"])", "algo-1,algo-2", R"({"a": 1, "b": 2})"}) {
    INFO(text);
    CHECK(count("SM_HOSTS", text) == 0);
  }
  CHECK_FALSE(platform_tasks({}));
}

TEST_CASE("JAX, SageMaker and AWS Batch name their processes or hosts", "[net]") {
  CHECK(count("JAX_NUM_PROCESSES", "4") == 4);
  CHECK(count("AWS_BATCH_JOB_NUM_NODES", "16") == 16);
  CHECK(count("SM_HOSTS", R"(["algo-1", "algo-2"])") == 2);
}

TEST_CASE("one of several tasks is told what to start", "[net]") {
  CHECK(not_one_of_several({}).ok());
  CHECK(not_one_of_several({{"SM_HOSTS", R"(["algo-1"])"}}).ok());
  const Status refused = not_one_of_several({{"SM_HOSTS", R"(["algo-1","algo-2"])"}});
  CHECK(refused.code() == Errc::kInvalidArgument);
  for (const char* part :
       {"SM_HOSTS names 2 tasks", "rank 0 of 1", "distrun -np N program", "distrun help agent", "unset SM_HOSTS"}) {
    CHECK(refused.message().find(part) != std::string::npos);
  }
  const Environment of_a_rank = {{"JAX_NUM_PROCESSES", "4"}, {"TF_CONFIG", tf_config(kCluster, "worker")}};
  CHECK(not_one_of_several(of_a_rank).message().find("unset TF_CONFIG and JAX_NUM_PROCESSES") != std::string::npos);
}

}  // namespace
}  // namespace distrun::net
