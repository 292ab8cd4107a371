#include "launcher/plan/launch_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "launcher/plan/hints.h"
#include "launcher/plan/hosts/text.h"
#include "runtime/net/bytes/wire.h"

namespace distrun::launcher {
namespace {

// Linux allows 128 KiB for one argument or variable. The size limit of a frame bounds their sum.
constexpr std::size_t kMaxText = 128 * 1024;
constexpr std::size_t kMaxItems = 1 << 20;
constexpr int kRankZeroPorts = 2;  // MASTER_PORT and JAX's coordinator

using NamedValues = std::vector<std::pair<std::string, std::string>>;

template <class V>
void variables(V& v, net::Ref<V, NamedValues> list) {
  v.list(list, kMaxItems,
         [](auto& w, auto& variable) { w.text(variable.first, kMaxText).text(variable.second, kMaxText); });
}

int local_ranks(const Assignment& assignment, int host) {
  return static_cast<int>(std::count_if(assignment.places.begin(), assignment.places.end(),
                                        [host](const Place& place) { return place.host == host; }));
}

// By local rank, the topology that each rank's agent sees, if the machine has several agents. Empty: it has one.
std::vector<const Topology*> tasks_beside(const std::vector<Place>& own, const Assignment& assignment,
                                          const std::vector<HostFacts>& facts) {
  const auto ranks = static_cast<std::size_t>(own.front().local_size);
  if (own.size() == ranks) return {};
  const auto first = static_cast<std::size_t>(own.front().rank - own.front().local_rank);  // ranks fill host after host
  std::vector<const Topology*> out;
  for (std::size_t rank = first; rank < first + ranks; ++rank) {
    out.push_back(&facts[static_cast<std::size_t>(assignment.places[rank].host)].topology);
  }
  return out;
}

Result<std::vector<Binding>> bind_hosts(const PlanRequest& request, const std::vector<HostFacts>& facts) {
  std::vector<std::vector<Place>> by_host(facts.size());
  for (const Place& place : request.assignment.places) by_host[static_cast<std::size_t>(place.host)].push_back(place);
  std::vector<Binding> out;
  for (std::size_t host = 0; host < facts.size(); ++host) {
    // All ranks of this machine. With --mpi each rank has its own agent, and that agent has only one of them.
    const int ranks = by_host[host].front().local_size;
    if (!facts[host].asked) {
      const bool by_option = request.options.placement.bind_to == BindTo::kNone;
      out.insert(out.end(), by_host[host].size(),
                 Binding{.known = false, .threads = 0, .cpu_reason = by_option ? kNotPinnedByOption : ""});
      continue;
    }
    auto bound = bind_ranks(facts[host].topology, ranks, request.options.placement,
                            tasks_beside(by_host[host], request.assignment, facts));
    if (!bound.ok()) return bound.status().with_context("host " + request.assignment.hosts[host]);
    for (const Place& place : by_host[host]) out.push_back((*bound)[static_cast<std::size_t>(place.local_rank)]);
  }
  return out;
}

// The ports of a host are in the order of its ranks. Rank 0's host has two more at the end.
JobFacts job_facts(const PlanRequest& request, const std::vector<HostFacts>& facts) {
  JobFacts out;
  out.tf_config = needs_tf_config(request.options.frameworks, request.assignment.places.size());
  out.tf_roles = request.tf_roles;
  out.places = request.assignment.places;
  out.hosts = request.assignment.hosts;
  out.job_id = request.job_id;
  out.store = request.store;
  out.master_name = request.master_name;
  std::vector<std::vector<std::uint16_t>> ports;
  for (const HostFacts& host : facts) {
    out.address.push_back(host.address);
    out.interface.push_back(host.interface);
    ports.push_back(host.ports);
  }
  if (ports[0].size() >= kRankZeroPorts) {
    out.jax_port = ports[0].back();
    ports[0].pop_back();
    out.master_port = ports[0].back();
    ports[0].pop_back();
  }
  if (const auto named = named_master_port(request.base); named.ok() && *named != 0) out.master_port = *named;
  std::vector<std::size_t> next(ports.size(), 0);
  for (const Place& place : out.places) {
    const auto host = static_cast<std::size_t>(place.host);
    const std::size_t i = next[host]++;
    out.tf_ports.push_back(i < ports[host].size() ? ports[host][i] : std::uint16_t{0});
  }
  return follows(std::move(out));
}

void report_to_servers(const PlanRequest& request, const std::set<int>& servers, LaunchPlan& out) {
  if (servers.empty()) return;
  const TfServers kind = request.options.frameworks.tf_servers;
  const std::string serving = "ranks " + ranges({servers.begin(), servers.end()});
  const std::set<int> clients = client_ranks(request.tf_roles, kind);
  const std::string served = ranges({clients.begin(), clients.end()});
  if (kind == TfServers::kOwn) {
    out.reasons.push_back("--tf-own-servers: every rank runs the program, and " + serving +
                          " (ps) end after the last of ranks " + served + " (chief, worker)");
    return;
  }
  out.reasons.push_back("--tf-roles with ps: " + serving +
                        " run a TensorFlow server instead of the program, and end with the chief, rank " + served);
  // The strategy may be named in another file. But if every role of the script runs its own part, nothing would be
  // trained.
  if (!request.script.strategies.known || request.script.strategies.parameter_server) return;
  out.hints.push_back("add --tf-own-servers if your script runs in every role and its workers train: now " + serving +
                      " (ps, worker) run a TensorFlow server instead of it");
}

// Tells the user which variables of -x or --env-file have no effect, because distrun sets them for each rank.
// CUDA_VISIBLE_DEVICES is not among them: it says which GPUs distrun may give out.
void report_overwritten(const BaseEnvironment& base, LaunchPlan& out) {
  std::set<std::string> names;
  for (const Variable& own : out.variables.front()) {
    const bool named = std::find(base.named.begin(), base.named.end(), own.name) != base.named.end();
    if (named && own.name != "CUDA_VISIBLE_DEVICES" && value_in(out, own) != value_of(base.variables, own.name)) {
      names.insert(own.name);
    }
  }
  if (names.empty()) return;
  out.hints.push_back(join({names.begin(), names.end()}, ", ") + " of -x or --env-file " +
                      (names.size() == 1 ? "has" : "have") + " no effect: distrun sets a value for each rank" +
                      (names.contains("TF_CONFIG") ? ". To set TF_CONFIG yourself, add --no-tf-config" : ""));
}

// Matters from about 6,000 ranks: Linux cannot start a program with a longer variable.
Status fit_tf_config(const FrameworkOptions& frameworks, JobFacts& job, LaunchPlan& out) {
  if (!job.tf_config) return {};
  const int last = static_cast<int>(job.places.size()) - 1;
  out.tf_cluster = tf_cluster(job);
  const std::size_t length = out.tf_cluster.size() + tf_task(job, last).size();
  if (std::string_view("TF_CONFIG=").size() + length < kLongestVariable) return {};
  out.tf_cluster.clear();
  const std::string what =
      "TF_CONFIG for " + counted(job.places.size(), "rank") + " is longer than a variable may be in Linux (128 KiB)";
  if (frameworks.for_tf()) {
    return {Errc::kInvalidArgument, what + ". Use fewer ranks"};
  }
  job.tf_config = false;
  out.hints.push_back(what + ", so ranks do not get it");
  return {};
}

}  // namespace

template <class V>
void fields(V& v, net::Ref<V, JobCommon> common) {
  v.texts(common.command, kMaxItems, kMaxText).texts(common.server, kMaxItems, kMaxText);
  v.text(common.script, kMaxText)
      .text(common.choice, kMaxText)
      .text(common.cwd, kMaxText)(common.umask, common.open_files);
  NamedValues environment(common.environment.begin(), common.environment.end());
  variables(v, environment);
  if constexpr (V::kReads) common.environment = {environment.begin(), environment.end()};
  v.texts(common.host_own, kMaxItems, kMaxText).check(!common.command.empty(), "no command");
}

template <class V>
void fields(V& v, net::Ref<V, HostPlan> plan) {
  v.text(plan.host, kMaxText)(plan.key_fd);
  v.list(plan.ranks, kMaxRanks, [](auto& w, auto& rank) {
    w(rank.rank, rank.local_rank, rank.serves).one_of(rank.input, 3).numbers(rank.cpus, kMaxItems);
    variables(w, rank.environment);
    w.text(rank.tf_task, kMaxText);
  });
  v.check(plan.key_fd >= 3, "the key's descriptor would hide a standard stream");
  v.check(!plan.ranks.empty(), "no ranks");
}

template void fields(net::WireWriter& v, const JobCommon& common);
template void fields(net::WireReader& v, JobCommon& common);
template void fields(net::WireWriter& v, const HostPlan& plan);
template void fields(net::WireReader& v, HostPlan& plan);

std::string value_in(const LaunchPlan& plan, const Variable& variable) {
  return variable.after_cluster ? plan.tf_cluster + variable.value : variable.value;
}

std::vector<std::string> plan_reasons(const LaunchPlan& plan) {
  std::vector<std::string> out = plan.reasons;
  std::map<std::string, std::vector<int>> by_reason;
  for (std::size_t rank = 0; rank < plan.bindings.size(); ++rank) {
    if (!plan.bindings[rank].known) {
      by_reason["cores and GPU: not known, because the host is asked when the job starts"].push_back(
          static_cast<int>(rank));
      continue;
    }
    by_reason["cores: " + plan.bindings[rank].cpu_reason].push_back(static_cast<int>(rank));
    by_reason["GPU: " + plan.bindings[rank].gpu_reason].push_back(static_cast<int>(rank));
  }
  for (const auto& [reason, ranks] : by_reason) {
    out.push_back((ranks.size() == plan.bindings.size() ? "all ranks" : rank_list(ranks)) + ", " + reason);
  }
  return out;
}

int ports_needed(const PlanRequest& request, int host) {
  const bool tf_config = needs_tf_config(request.options.frameworks, request.assignment.places.size());
  const int for_tf = tf_config ? local_ranks(request.assignment, host) : 0;
  return for_tf + (host == request.assignment.places.front().host ? kRankZeroPorts : 0);
}

Result<LaunchPlan> make_plan(const PlanRequest& request, const std::vector<HostFacts>& facts) {
  DISTRUN_CHECK(facts.size() == request.assignment.hosts.size(), "facts of every host");
  LaunchPlan out;
  auto bindings = bind_hosts(request, facts);
  if (!bindings.ok()) return bindings.status();
  JobFacts job = job_facts(request, facts);
  out.places = job.places;
  out.host_names = job.hosts;
  out.bindings = *std::move(bindings);
  out.reasons = request.assignment.reasons;
  for (const auto& [name, why] : request.base.given) {
    out.given.push_back({name, value_of(request.base.variables, name), why});
  }
  if (!request.base.removed.empty()) {
    out.reasons.push_back("variables of an outer launcher are not passed on (--env all or -x NAME keeps them): " +
                          join(request.base.removed, " "));
  }
  if (job.master_port != 0 && job.places.size() > 1) {
    out.reasons.push_back("MASTER_PORT " + std::to_string(job.master_port) +
                          " is for the store of torch.distributed with other backends than distrun. Everybody who "
                          "reaches the port can read and write that store");
  }
  out.hints = request.assignment.hints;
  const FrameworkOptions& frameworks = request.options.frameworks;
  const std::set<int> servers = server_ranks(request.tf_roles, frameworks.tf_servers);
  report_to_servers(request, servers, out);
  for (std::string& hint : hints_for(request, facts, out)) out.hints.push_back(std::move(hint));
  DISTRUN_RETURN_IF_ERROR(fit_tf_config(frameworks, job, out));
  if (auto direct = no_grpc_proxy(job, request.base.variables)) {
    out.no_grpc_proxy = direct->value;
    std::erase_if(out.given, [](const Variable& given) { return given.name == "no_grpc_proxy"; });
    out.given.push_back(*std::move(direct));
  }
  for (const std::string& name : job.hosts) out.hosts.push_back({.host = name, .key_fd = job.key_fd});
  for (const Place& place : job.places) {
    const Binding& binding = out.bindings[static_cast<std::size_t>(place.rank)];
    out.variables.push_back(rank_environment(job, request.options, binding, request.base.variables, place.rank));
    RankPlan rank{.rank = place.rank,
                  .local_rank = place.local_rank,
                  .serves = frameworks.tf_servers == TfServers::kOurs && servers.contains(place.rank),
                  .input = request.options.output.input.of(place.rank),
                  .cpus = binding.cpus};
    for (const Variable& variable : out.variables.back()) {
      if (variable.after_cluster) {
        rank.tf_task = variable.value;
      } else {
        rank.environment.emplace_back(variable.name, variable.value);
      }
    }
    out.hosts[static_cast<std::size_t>(place.host)].ranks.push_back(std::move(rank));
  }
  report_overwritten(request.base, out);
  return out;
}

}  // namespace distrun::launcher
