// The launch plan as a value: all decisions before the start, with the reasons. Pure. The head makes it. Each agent
// gets its host's part as bytes, and --explain prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/environment/environment.h"
#include "launcher/plan/network/network.h"

namespace distrun::launcher {

// Common to every rank of the job.
struct JobCommon {
  std::vector<std::string> command;  // argv; command[0] is looked up in the rank's PATH
  std::string script;                // file that must exist before the start (train.py), or empty
  std::string choice;                // which Python command[0] is, if distrun has chosen it; else empty
  std::vector<std::string> server;   // command of ranks that serve the others; empty: there are none
  std::string cwd;
  std::uint32_t umask = 022;
  std::uint64_t open_files = 0;  // soft limit that ranks get back; 0: unchanged
  Environment environment;
  // Variables that take the value of the rank's host, if it has them. Only the names of folders may also be in
  // `environment`: that value stays if the folder exists on the host.
  std::vector<std::string> host_own;
  friend bool operator==(const JobCommon&, const JobCommon&) = default;
};

struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  bool serves = false;  // runs JobCommon::server
  RankInput input = RankInput::kNone;
  std::vector<int> cpus;                                         // empty: not pinned
  std::vector<std::pair<std::string, std::string>> environment;  // added to the common one
  std::string tf_task;  // end of TF_CONFIG, after the part that all ranks share; empty: not set
  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

// The part of one agent.
struct HostPlan {
  std::string host;
  int key_fd = 3;  // descriptor number where each rank finds its key
  std::vector<RankPlan> ranks;
  friend bool operator==(const HostPlan&, const HostPlan&) = default;
};

template <class V>
void fields(V& v, net::Ref<V, JobCommon> common);
template <class V>
void fields(V& v, net::Ref<V, HostPlan> plan);

// Facts that one agent finds about its host before anything starts there.
struct HostFacts {
  Topology topology;
  bool asked = true;    // false: nobody has asked the host, so its topology is not known
  std::string machine;  // from machine_identity(); empty: unknown
  std::string name;     // as the host calls itself
  // Free ports that the agent holds there: one per rank for TF_CONFIG, and two more on rank 0's host.
  std::vector<std::uint16_t> ports;
  std::string address;                // what other ranks connect to
  std::string interface;              // interface with that address; empty if all ranks are on one host
  std::vector<Candidate> candidates;  // addresses of the host, if a probe was requested
  std::uint16_t probe_port = 0;       // port where it answers probes; 0: it does not
  std::vector<std::string> reasons;   // for the user: how the variables of ranks there differ
};

// Facts from the text of the program, if it is a script.
struct Script {
  Strategies strategies;
  Imports imports;
  std::string launcher;  // result of launcher_in(): the launcher that the ranks would run
};

// The input of a plan. The options are as the user gave them, the rest was detected.
struct PlanRequest {
  Options options;
  Assignment assignment;
  std::vector<TfRole> tf_roles;  // by rank; empty: all are workers
  Script script;
  BaseEnvironment base;
  std::string job_id;
  std::string store;
  std::string master_name;  // as in JobFacts
};

struct LaunchPlan {
  std::vector<HostPlan> hosts;
  // Beginning of every rank's TF_CONFIG. It names all ranks, so it is not in each host's plan.
  std::string tf_cluster;
  std::string no_grpc_proxy;  // for every rank, since it names all hosts; empty: not set
  // By rank, for the user:
  std::vector<Place> places;
  std::vector<std::string> host_names;
  std::vector<Binding> bindings;
  std::vector<std::vector<Variable>> variables;  // the rank's own variables
  std::vector<Variable> given;                   // set for all ranks, unless a rank has its own
  std::vector<std::string> reasons;
  std::vector<std::string> hints;  // shown to the user in any case
};

// The value as the rank sees it.
std::string value_in(const LaunchPlan& plan, const Variable& variable);

// All reasons of the plan. A reason that holds for several ranks appears once.
std::vector<std::string> plan_reasons(const LaunchPlan& plan);

// How many ports an agent must hold for the given host.
int ports_needed(const PlanRequest& request, int host);

// `facts` are by host, as many as the assignment has hosts.
Result<LaunchPlan> make_plan(const PlanRequest& request, const std::vector<HostFacts>& facts);

}  // namespace distrun::launcher
