// What ranks find in their environment: what they inherit, and what each gets from us with the reason. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan/environment/imports.h"
#include "launcher/plan/environment/tf_layout.h"
#include "launcher/plan/place/assign.h"
#include "launcher/plan/place/bind.h"
#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

// Linux's limit for one variable, with its name and the final NUL: no program can be started with a longer one.
inline constexpr std::size_t kLongestVariable = 128 * 1024;

// The value of a variable; empty also where it is not set.
std::string value_of(const Environment& environment, const std::string& name);

struct BaseEnvironment {
  Environment variables;
  std::map<std::string, std::string> given;  // names of those that are not as the user has them, and why
  std::vector<std::string> named;            // by -x and --env-file
  std::vector<std::string> removed;          // names that an outer launcher had set
  // Names that say something about this host, account or session: on other hosts ranks have what those say, or nothing.
  // Those of folders hold there too where the folder is there.
  std::vector<std::string> host_own;
  std::vector<std::string> notes;  // for the user: -x of a variable that is not set
};

// What every rank inherits from the user's environment.
// `from_file`: what --env-file has.
BaseEnvironment base_environment(const Environment& user, const EnvironmentOptions& options,
                                 const std::vector<std::pair<std::string, std::string>>& from_file = {});

// The port that -x or --env-file names for MASTER_PORT; 0: they do not, and it is one that is free.
Result<std::uint16_t> named_master_port(const BaseEnvironment& base);

// CUDA_VISIBLE_DEVICES, where it is set.
std::optional<std::string> visible_devices(const Environment& environment);

// True for variables that another launcher sets to number its own tasks.
bool names_outer_rank(std::string_view name);

// Of a folder for temporary files, which all hosts may have, or this one alone.
bool names_folder(std::string_view name);

// Of the GPUs and the like that a process may use; a scheduler may give each task its own.
bool names_devices(std::string_view name);

// True for variables that say something about one host or a session there (about the account: not here).
bool names_one_host(std::string_view name);

// "NAME=value" lines, "NAME" alone meaning the user's own value; comments and blank lines are left out.
Result<std::vector<std::pair<std::string, std::string>>> parse_env_file(std::string_view text, const std::string& file,
                                                                        const Environment& user);
bool valid_variable_name(std::string_view name);

// What is known of the job once every host has answered. Port 0 means "not chosen yet" and is shown as such.
struct JobFacts {
  bool tf_config = true;
  std::vector<TfRole> tf_roles;         // by rank; empty: all are workers
  std::vector<Place> places;            // by rank
  std::vector<std::string> hosts;       // names, by host
  std::vector<std::string> address;     // by host: what other ranks connect to
  std::vector<std::string> interface;   // by host: that has the address; empty when all ranks are on one host
  std::vector<std::uint16_t> tf_ports;  // by rank, empty without TF_CONFIG
  std::uint16_t master_port = 0;
  std::uint16_t jax_port = 0;
  std::string job_id;
  std::string store;
  int key_fd = 3;
  // What follows() has found in the others.
  std::vector<int> node;    // by rank: number of its machine
  std::string slurm_hosts;  // all hosts, and the tasks on each, as Slurm writes them
  std::string slurm_tasks;
};
// Fills in what follows from places and hosts, for all ranks at once.
JobFacts follows(JobFacts facts);

struct Variable {
  std::string name;
  std::string value;
  std::string why;
  bool after_cluster = false;  // the rank's is tf_cluster() and then this value
};

// TF_CONFIG names all ranks to each rank: what is the same for all, kept and sent once, and what follows it.
std::string tf_cluster(const JobFacts& facts);
std::string tf_task(const JobFacts& facts, int rank);

// The variable that keeps gRPC (TensorFlow's clusters, JAX) from asking the user's proxy for the hosts of the job; it
// is the same for all ranks. Nothing where there is no proxy, or the user has set it.
std::optional<Variable> no_grpc_proxy(const JobFacts& facts, const Environment& base);

// What the launcher named by --mimic would have told this rank: for jax.distributed.initialize() and other programs
// that look for their place there. Not for MPI programs, which would look for its processes too.
void add_mimicked(const JobFacts& facts, Mimic mimic, const Environment& base, int rank, std::vector<Variable>& out);

// A strategy needs none in a process that is alone, and TensorFlow 1's MirroredStrategy would take the GPUs of the
// cluster's worker for its own, which no session has.
bool needs_tf_config(const FrameworkOptions& frameworks, std::size_t ranks);

// The variables that are this rank's own, in the order to show them. `base` decides what is left as the user has it.
std::vector<Variable> rank_environment(const JobFacts& facts, const Options& options, const Binding& binding,
                                       const Environment& base, int rank);

}  // namespace distrun::launcher
