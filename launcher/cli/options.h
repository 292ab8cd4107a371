// What the command line, the config file and the environment ask for, checked and typed. The command-line library is in
// arguments.cc alone.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/launch_plan.h"
#include "launcher/plan/network/network.h"
#include "launcher/plan/place/bind.h"
#include "launcher/report/output.h"
#include "launcher/spawn/remote_command.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

struct Options {
  int ranks = 0;           // 0: not given
  int ranks_per_host = 0;  // 0: not given
  std::string hosts;
  std::string hostfile;
  // With neither of them: use the allocation that there is. And start one job, if this is one of several copies.
  bool detect = true;
  bool oversubscribe = false;
  SshOptions ssh;
  int fan_out = 32;  // agents that one host starts
  NetworkFilter network;
  std::string launch_with;
  int agents = 0;  // so many dial in; 0: we start them
  std::string listen = "*:0";
  std::string key_file;
  std::string mpi;  // "mpirun", "pmix" or "pmi2": MPI's launcher starts the ranks; empty: ours does

  BindTo bind_to = BindTo::kAuto;
  GpuVisibility gpu_visibility = GpuVisibility::kAll;
  int gpus_per_rank = 0;  // 0: not given
  bool report_bindings = false;
  bool tf_config = true;
  std::string tf_roles;
  bool tf_own_servers = false;
  bool tf = false;
  bool tf_keras3_mwms = false;
  std::string torch_backend;  // what torch.distributed uses where a program says gloo; empty: gloo
  bool horovod = false;
  Mimic mimic = Mimic::kNone;

  EnvMode env_mode = EnvMode::kDefault;
  std::vector<std::string> forwarded;  // -x
  std::string env_file;
  // Settings of the runtime that were given as flags: {"fusion_threshold", "1MiB"}; and in the config file, where a
  // DISTRUN_* variable wins over them.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::pair<std::string, std::string>> file_settings;

  TagStyle tag = TagStyle::kRank;
  bool timestamp = false;
  Folding fold = Folding::kOnTerminal;
  std::string output_dir;
  std::string report;  // a file, or empty
  InputRequest input;
  bool all_errors = false;

  double timeout = 0;
  double grace = 10;
  bool grace_given = false;

  bool verbose = false;
  std::string explain;  // "", "text" or "json"
  std::string sysroot = "/";

  bool module = false;               // -m: program[0] is a Python module
  std::vector<std::string> program;  // with its arguments
};

// Either options of a job to run, or a text that answers the user, with the exit code.
struct ParseOutcome {
  Options options;
  bool run = false;
  std::string text;
  int exit_code = 0;
};

ParseOutcome parse_arguments(const std::vector<std::string>& arguments);

// The strings of the command line, before they are checked.
struct RawOptions {
  std::string ranks, ranks_per_host, bind_to = "auto", gpu_visibility, env_mode = "default", tag = "rank",
                                     timeout = "0", grace = "10", ssh_port, network, agents, listen, gpus_per_rank,
                                     input, terminal, mimic;
  bool no_tf_config = false;
  bool no_detect = false;
  bool fold = false;
  bool no_fold = false;
};
// Checks and converts; the texts name the option, the value and what is allowed.
Status check_options(const RawOptions& raw, Options& options);
// Options of the command line that would have no effect beside others; what a config file has may be for other jobs.
Status check_typed(const std::set<std::string>& typed, const Options& options);

}  // namespace distrun::launcher
