#include "launcher/plan/environment/tf_layout.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/launch_plan.h"
#include "test/support/text.h"

namespace distrun::launcher {
namespace {

std::string refusal(const std::string& roles, int ranks) {
  const auto parsed = parse_tf_roles(roles, ranks);
  REQUIRE_FALSE(parsed.ok());
  return parsed.status().message();
}

using distrun::test::has;

TEST_CASE("roles are given in rank order") {
  for (const char* text : {"chief=1,worker=2,ps=1,evaluator=1", "chief:1,worker:2,ps:1,evaluator:1",
                           "chief,worker=1,worker=1,ps,evaluator"}) {
    const auto roles = parse_tf_roles(text, 5);
    REQUIRE(roles.ok());
    CHECK(*roles == std::vector<TfRole>{{"chief", 0}, {"worker", 0}, {"worker", 1}, {"ps", 0}, {"evaluator", 0}});
  }
  const auto split = parse_tf_roles("worker:2,chief,ps:1,worker:1", 5);
  REQUIRE(split.ok());
  CHECK((*split)[4] == TfRole{"worker", 2});
  CHECK(client_ranks(*split, TfServers::kOurs) == std::set<int>{2});
}

TEST_CASE("mistakes in roles are shown") {
  CHECK(has(refusal("worker=3", 4), "Make the sum of its numbers equal to -np"));
  CHECK(has(refusal("worker=5", 4), "Make the sum of its numbers equal to -np"));
  CHECK(has(refusal("worker=1,boss=3", 4), "--tf-roles, column 10: 'boss' is not a TensorFlow role"));
  CHECK(has(refusal("worker=x", 4), "column 8: expected a number of tasks"));
  CHECK(has(refusal("worker=0", 4), "column 8: expected a number of tasks"));
  CHECK(has(refusal("chief=2,worker=2", 4), "only one chief"));
  CHECK(has(refusal("chief,chief,worker=2", 4), "only one chief"));
  CHECK(has(refusal("", 4), "is not a TensorFlow role"));
  CHECK(has(refusal("worker=4,", 4), "column 10"));
}

TEST_CASE("beside a ps the workers run servers") {
  const auto roles = parse_tf_roles("chief=1,worker=2,ps=1,evaluator=1", 5);
  REQUIRE(roles.ok());
  CHECK(server_ranks(*roles, TfServers::kOurs) == std::set<int>{1, 2, 3});
  CHECK(client_ranks(*roles, TfServers::kOurs) == std::set<int>{0});
  const auto workers = parse_tf_roles("chief=1,worker=2,evaluator=1", 4);
  REQUIRE(workers.ok());
  CHECK(server_ranks(*workers, TfServers::kOurs).empty());
  CHECK(server_ranks({}, TfServers::kOurs).empty());
}

TEST_CASE("with servers of the program's own the workers train, and the ps serves them until the last has ended") {
  const auto roles = parse_tf_roles("ps=1,worker=2,evaluator=1", 4, TfServers::kOwn);
  REQUIRE(roles.ok());
  CHECK(server_ranks(*roles, TfServers::kOwn) == std::set<int>{0});
  CHECK(client_ranks(*roles, TfServers::kOwn) == std::set<int>{1, 2});
  const auto with_chief = parse_tf_roles("chief,ps", 2, TfServers::kOwn);
  REQUIRE(with_chief.ok());
  CHECK(client_ranks(*with_chief, TfServers::kOwn) == std::set<int>{0});
  CHECK(has(parse_tf_roles("worker=2", 2, TfServers::kOwn).status().message(), "needs a ps in --tf-roles"));
  CHECK(has(parse_tf_roles("ps=2", 2, TfServers::kOwn).status().message(), "no worker to train"));
}

TEST_CASE("layouts that would hang are refused") {
  CHECK(has(refusal("worker=2,ps=1", 3), "add chief=1 to --tf-roles"));
  CHECK(has(refusal("chief=1,ps=1", 2), "add worker=1"));
  const auto roles = parse_tf_roles("chief=1,worker=1,ps=1", 3);
  REQUIRE(roles.ok());
  const Strategies mirrored = strategies_in("s = tf.distribute.MultiWorkerMirroredStrategy()");
  CHECK(has(check_tf_layout(*roles, mirrored).message(), "leave out ps in --tf-roles, or use ParameterServerStrategy"));
  CHECK(check_tf_layout(*roles, strategies_in("ParameterServerStrategy(r)  # no MultiWorkerMirroredStrategy")).ok());
  CHECK(check_tf_layout(*parse_tf_roles("chief=1,worker=1", 2), mirrored).ok());
}

LaunchPlan planned(const Strategies& uses, const Options& options, int gpus) {
  PlanRequest request{.options = options, .script = {.strategies = uses}};
  request.assignment.hosts = {"a"};
  HostFacts facts{.address = "127.0.0.1"};
  facts.topology.gpus.resize(static_cast<std::size_t>(gpus));
  for (int rank = 0; rank < 2; ++rank) {
    request.assignment.places.push_back({.rank = rank, .local_rank = rank, .local_size = 2});
  }
  const auto plan = make_plan(request, {facts});
  REQUIRE(plan.ok());
  return *plan;
}

TEST_CASE("a strategy that takes all GPUs gets a hint where ranks share them") {
  const Strategies uses{.multi_worker = true};
  REQUIRE(planned(uses, {}, 2).hints.size() == 1);
  CHECK(has(planned(uses, {}, 2).hints[0], "add --tf"));
  CHECK(planned(uses, {}, 0).hints.empty());
  CHECK(planned(uses, {.frameworks = {.tf = true}}, 2).hints.empty());
  CHECK(planned(uses, {.placement = {.gpu_visibility = GpuVisibility::kOne}}, 2).hints.empty());
  CHECK(planned({}, {}, 2).hints.empty());
}

TEST_CASE("a script that needs an option for tf.distribute gets a hint with it") {
  const auto hints = [](const std::string& script, const Options& options = {}) {
    return planned(strategies_in(script), options, 0).hints;
  };
  const std::string mwms = "s = tf.distribute.MultiWorkerMirroredStrategy()\n";
  REQUIRE(hints(mwms + "model.fit(x)").size() == 1);
  CHECK(has(hints(mwms + "model.fit(x)")[0], "fails with Keras 3: add --tf-keras3-mwms"));
  CHECK(hints(mwms + "model.fit(x)", {.frameworks = {.tf = true, .tf_keras3_mwms = true}}).empty());
  for (const char* other : {"step()", "import tf_keras\nmodel.fit(x)", "hvd.patch_keras_mwms()\nmodel.fit(x)"}) {
    CHECK(hints(mwms + other).empty());
  }
  const std::string servers = "s = tf.distribute.ParameterServerStrategy(r)";
  REQUIRE(hints(servers).size() == 1);
  CHECK(has(hints(servers)[0], "add -np 3 --tf-roles chief=1,worker=1,ps=1"));
  CHECK(hints(servers, {.frameworks = {.tf_config = false}}).empty());
  REQUIRE(hints("s = tf.distribute.MirroredStrategy()").size() == 1);
  CHECK(has(hints("s = tf.distribute.MirroredStrategy()")[0], "(-np 1 --gpus-per-rank N)"));
  CHECK(hints("class MyMirroredStrategy(X): pass").empty());
  const std::string assigns = "os.environ[\"TF_CONFIG\"] = json.dumps(config)\n";
  REQUIRE(hints(assigns + servers).size() == 1);
  CHECK(has(hints(assigns + servers)[0], "the script assigns TF_CONFIG itself"));
  CHECK(hints(assigns, {.frameworks = {.tf_config = false}}).empty());
  for (const char* other : {"x = os.environ['TF_CONFIG']", "if os.environ['TF_CONFIG'] == '': pass",
                            "if 'TF_CONFIG' not in os.environ:\n  os.environ['TF_CONFIG'] = a",
                            "rank = os.environ['RANK']\nos.environ['TF_CONFIG'] = a"}) {
    CHECK(hints(other).empty());
  }
}

TEST_CASE("an Estimator gets a hint if it has no chief, or is made before init()") {
  const auto hints = [](const std::string& script, bool distrun = false) {
    PlanRequest request{.script = {.strategies = strategies_in(script), .imports = {.distrun = distrun}}};
    request.assignment = *assign({.hosts = {{.name = "a", .slots = 4}}});
    return make_plan(request, {HostFacts{.address = "A"}})->hints;
  };
  const std::string made = "e = tf.estimator.Estimator(model)\n";
  REQUIRE(hints(made).size() == 1);
  CHECK(has(hints(made)[0], "--tf-roles chief=1,worker=3, or --no-tf-config"));
  REQUIRE(hints(made + "hvd.init()", true).size() == 1);
  CHECK(has(hints(made + "hvd.init()", true)[0], "makes an Estimator before init()"));
  CHECK(hints("hvd.init()\n" + made, true).empty());
  CHECK(hints("def build():\n  return tf.estimator.DNNClassifier(x)\ndef main():\n  hvd.init()\n", true).empty());
  CHECK(hints("def model():\n  return tf.estimator.EstimatorSpec(mode)\n").empty());
}

TEST_CASE("a script with SlurmClusterResolver is told of --mimic slurm, and of what the resolver makes of it") {
  const Strategies uses = strategies_in("r = SlurmClusterResolver()\ns = MultiWorkerMirroredStrategy(r)");
  REQUIRE(planned(uses, {}, 2).hints.size() == 1);
  CHECK(has(planned(uses, {}, 2).hints[0], "add --mimic slurm"));
  CHECK(planned(uses, {.frameworks = {.mimic = Mimic::kSlurm}}, 2).hints.empty());
  REQUIRE(planned(uses, {.frameworks = {.tf = true, .mimic = Mimic::kSlurm}}, 2).hints.size() == 1);
  CHECK(has(planned(uses, {.frameworks = {.tf = true, .mimic = Mimic::kSlurm}}, 2).hints[0], "leave out --tf"));
  PlanRequest request{.options = {.frameworks = {.mimic = Mimic::kSlurm}}, .script = {.strategies = uses}};
  request.assignment = *assign({.hosts = {{.name = "b", .slots = 1}, {.name = "a", .slots = 1}}});
  const auto plan = make_plan(request, {HostFacts{.address = "B"}, HostFacts{.address = "A"}});
  REQUIRE(plan->hints.size() == 1);
  CHECK(has(plan->hints[0], "Now they are b, a"));
}

TEST_CASE("a TF_CONFIG that no program could be started with is left out, or refused where it is asked for") {
  PlanRequest request;
  request.assignment.hosts = {"a"};
  constexpr int kRanks = 7000;
  for (int rank = 0; rank < kRanks; ++rank) {
    request.assignment.places.push_back({.rank = rank, .local_rank = rank, .local_size = kRanks});
  }
  const std::vector<HostFacts> facts(1, {.address = "10.0.0.1"});
  const auto plan = make_plan(request, facts);
  REQUIRE(plan.ok());
  REQUIRE(plan->hints.size() == 1);
  CHECK(has(plan->hints[0], "TF_CONFIG for 7000 ranks is longer"));
  const auto& variables = plan->variables.back();
  CHECK(std::none_of(variables.begin(), variables.end(), [](const auto& one) { return one.name == "TF_CONFIG"; }));
  request.options.frameworks.tf = true;
  CHECK(has(make_plan(request, facts).status().message(), "Use fewer ranks"));
}

TEST_CASE("servers are told in the plan") {
  const auto roles = parse_tf_roles("chief,worker,ps", 3);
  REQUIRE(roles.ok());
  PlanRequest request{.options = {.frameworks = {.tf_roles = "chief,worker,ps"}}, .tf_roles = *roles};
  request.assignment.hosts = {"a"};
  for (int rank = 0; rank < 3; ++rank) {
    request.assignment.places.push_back({.rank = rank, .local_rank = rank, .local_size = 3});
  }
  const auto plan = make_plan(request, {HostFacts{}});
  REQUIRE(plan.ok());
  CHECK_FALSE(plan->hosts[0].ranks[0].serves);
  CHECK(plan->hosts[0].ranks[2].serves);
  CHECK(has(plan->reasons.back(), "ranks 1-2 run a TensorFlow server"));
  CHECK(plan->hints.empty());
  request.script.strategies = strategies_in("if task_type == 'worker': train()");
  const auto hinted = make_plan(request, {HostFacts{}});
  REQUIRE(hinted->hints.size() == 1);
  CHECK(has(hinted->hints[0], "add --tf-own-servers if your script runs in every role"));
  request.options.frameworks.tf_servers = TfServers::kOwn;
  const auto own = make_plan(request, {HostFacts{}});
  CHECK(own->hints.empty());
  CHECK_FALSE(own->hosts[0].ranks[2].serves);
  CHECK(has(own->reasons.back(), "ranks 2 (ps) end after the last of ranks 0-1 (chief, worker)"));
  request.options.frameworks.tf_servers = TfServers::kOurs;
  request.script.strategies = strategies_in("s = tf.distribute.ParameterServerStrategy(resolver)");
  CHECK(make_plan(request, {HostFacts{}})->hints.empty());
}

}  // namespace
}  // namespace distrun::launcher
