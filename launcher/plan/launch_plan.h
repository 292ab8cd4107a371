// The launch plan as a value: everything that is decided before anything starts, with the reasons. Pure.
// The head makes it; each agent gets its host's part as bytes; --explain prints it.
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

// What every rank of the job has in common.
struct JobCommon {
  std::vector<std::string> command;  // argv; command[0] is looked up in the rank's PATH
  std::string script;                // a file that must exist before the start (train.py), or empty
  std::vector<std::string> server;   // what ranks run that serve the others instead; empty: none do
  std::string cwd;
  std::uint32_t umask = 022;
  std::uint64_t open_files = 0;  // soft limit that ranks get back; 0: leave it
  Environment environment;
  // Variables to be taken from the host's own environment, if it has them. Those that are among the others all the same
  // name folders.
  std::vector<std::string> host_own;
  friend bool operator==(const JobCommon&, const JobCommon&) = default;
};

struct RankPlan {
  int rank = 0;
  int local_rank = 0;
  bool serves = false;  // runs JobCommon::server
  RankInput input = RankInput::kNone;
  std::vector<int> cpus;                                         // empty: not pinned
  std::vector<std::pair<std::string, std::string>> environment;  // on top of the common one
  std::string tf_task;  // the end of TF_CONFIG, whose beginning all ranks share; empty: it is not set
  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

// One agent's part.
struct HostPlan {
  std::string host;
  int key_fd = 3;  // the descriptor number under which each rank finds its key
  std::vector<RankPlan> ranks;
  friend bool operator==(const HostPlan&, const HostPlan&) = default;
};

template <class V>
void fields(V& v, net::Ref<V, JobCommon> common);
template <class V>
void fields(V& v, net::Ref<V, HostPlan> plan);

// What one agent found out about its host before anything starts there.
struct HostFacts {
  Topology topology;
  std::string machine;                // as of machine_identity(); empty: not told
  std::vector<std::uint16_t> ports;   // held free on that host: one per rank for TF_CONFIG, on rank 0's host two more
  std::string address;                // what other ranks connect to
  std::string interface;              // that has the address; empty when all ranks are on one host
  std::vector<Candidate> candidates;  // its addresses, when a probe was asked for
  std::uint16_t probe_port = 0;       // where it answers probes; 0: it does not
  std::vector<std::string> reasons;   // for people: how ranks' variables there differ from the others'
};

// What the text of the program names, where it is a script.
struct Script {
  Strategies strategies;
  Imports imports;
  std::string launcher;  // as launcher_in() has it: what the ranks are to run
};

// What a plan follows from. The options are as the user gave them; all else was found.
struct PlanRequest {
  Options options;
  Assignment assignment;
  std::vector<TfRole> tf_roles;  // by rank; empty: all are workers
  Script script;
  BaseEnvironment base;
  std::string job_id;
  std::string store;
};

struct LaunchPlan {
  std::vector<HostPlan> hosts;
  std::string tf_cluster;  // the beginning of every rank's TF_CONFIG; not in each host's plan, for it names all ranks
  std::string no_grpc_proxy;  // every rank's, for it names all hosts; empty: it is not set
  // For people, by rank:
  std::vector<Place> places;
  std::vector<std::string> host_names;
  std::vector<Binding> bindings;
  std::vector<std::vector<Variable>> variables;  // that are the rank's own
  std::vector<Variable> given;                   // to all ranks, unless they have it as their own
  std::vector<std::string> reasons;
  std::vector<std::string> hints;  // to be said in any case
};

// As the rank finds it.
std::string value_in(const LaunchPlan& plan, const Variable& variable);

// Every reason of the plan, those that hold for several ranks once.
std::vector<std::string> plan_reasons(const LaunchPlan& plan);

// How many ports an agent must hold for the given host.
int ports_needed(const PlanRequest& request, int host);

// `facts` are by host, as many as the assignment has hosts.
Result<LaunchPlan> make_plan(const PlanRequest& request, const std::vector<HostFacts>& facts);

}  // namespace distrun::launcher
