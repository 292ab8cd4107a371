// The environment of the ranks: the variables that they inherit, and those that distrun sets, each with a reason. Pure.
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

// Linux's limit for one variable, including its name and the final NUL. It starts no program with a longer one.
inline constexpr std::size_t kLongestVariable = 128 * 1024;

// The value of a variable, or an empty text if it is not set.
std::string value_of(const Environment& environment, const std::string& name);

struct BaseEnvironment {
  Environment variables;
  std::map<std::string, std::string> given;  // names of changed variables, each with the reason
  std::vector<std::string> named;            // by -x and --env-file
  std::vector<std::string> removed;          // names that an outer launcher had set
  // Names of variables that describe this host, account or session. On other hosts ranks get that host's value or none.
  // Names of folders keep the user's value if the folder exists there.
  std::vector<std::string> host_own;
  std::vector<std::string> notes;  // for the user, such as an -x of a variable that is not set
};

// The variables that every rank inherits from the user's environment. `from_file` has those of --env-file.
BaseEnvironment base_environment(const Environment& user, const EnvironmentOptions& options,
                                 const std::vector<std::pair<std::string, std::string>>& from_file = {});

// The port of MASTER_PORT in -x or --env-file. 0: not given, so distrun takes a free port.
Result<std::uint16_t> named_master_port(const BaseEnvironment& base);

// CUDA_VISIBLE_DEVICES, if it is set.
std::optional<std::string> visible_devices(const Environment& environment);

// True for variables that another launcher sets to number its own tasks.
bool names_outer_rank(std::string_view name);

// True for variables that name a folder for temporary files. Such a folder may exist on all hosts or only on this one.
bool names_folder(std::string_view name);

// True for variables that list the GPUs and other devices of a process. A scheduler may give each task its own list.
bool names_devices(std::string_view name);

// True for variables that describe one host or a session on it, not for those of the account.
bool names_one_host(std::string_view name);

bool valid_variable_name(std::string_view name);

// The facts of a job after every host has answered. A port of 0 is not chosen yet and is shown as such.
struct JobFacts {
  bool tf_config = true;
  std::vector<TfRole> tf_roles;         // by rank; empty: all are workers
  std::vector<Place> places;            // by rank
  std::vector<std::string> hosts;       // names, by host
  std::vector<std::string> address;     // by host: what other ranks connect to
  std::vector<std::string> interface;   // by host: interface with that address; empty if all ranks are on one host
  std::vector<std::uint16_t> tf_ports;  // by rank, empty without TF_CONFIG
  std::string master_name;              // a name of rank 0's host for MASTER_ADDR; empty: its address
  std::uint16_t master_port = 0;
  std::uint16_t jax_port = 0;
  std::string job_id;
  std::string store;
  int key_fd = 3;
  // follows() computes these from the fields above.
  std::vector<int> node;    // by rank: number of its machine
  std::string slurm_hosts;  // all hosts, and the tasks on each, in Slurm's notation
  std::string slurm_tasks;
};
// Computes the fields that depend on places and hosts, for all ranks at once.
JobFacts follows(JobFacts facts);

struct Variable {
  std::string name;
  std::string value;
  std::string why;
  bool after_cluster = false;  // the full value is tf_cluster() followed by this value
};

// TF_CONFIG tells each rank about all ranks. The first part is the same for all and is kept and sent once. The second
// part follows it.
std::string tf_cluster(const JobFacts& facts);
std::string tf_task(const JobFacts& facts, int rank);

// The variable that stops gRPC (TensorFlow's clusters, JAX) from using the user's proxy for the hosts of the job. It is
// the same for all ranks. Extends the user's own value. Returns nothing if there is no proxy.
std::optional<Variable> no_grpc_proxy(const JobFacts& facts, const Environment& base);

// Adds the variables that the launcher of --mimic would set for this rank. jax.distributed.initialize() and other
// programs find their rank there. Not for MPI programs, which would also look for the processes of that launcher.
void add_mimicked(const JobFacts& facts, Mimic mimic, const Environment& base, int rank, std::vector<Variable>& out);

// False for a single rank without --tf or --tf-roles. A strategy needs no TF_CONFIG in a single process, and with one
// TensorFlow 1's MirroredStrategy would use the GPUs of the cluster's worker, which no session has.
bool needs_tf_config(const FrameworkOptions& frameworks, std::size_t ranks);

// The variables that are set for this rank only, in the order of the output. A default is not set if `base` has the
// variable.
std::vector<Variable> rank_environment(const JobFacts& facts, const Options& options, const Binding& binding,
                                       const Environment& base, int rank);

}  // namespace distrun::launcher
