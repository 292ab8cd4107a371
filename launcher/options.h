// The user's request as one typed value, made from the command line, the config file and the environment. After that it
// is read-only. Each part of the launcher gets the group that it needs. cli/arguments.cc has a row for each option.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distrun::launcher {

struct SshOptions {
  int port = 0;                      // 0: as in ssh's own configuration
  std::string identity;              // empty: as in ssh's own configuration
  std::vector<std::string> options;  // each as after ssh's -o
  [[nodiscard]] bool given() const { return port != 0 || !identity.empty() || !options.empty(); }
};

struct IpAddress {
  bool v6 = false;
  std::array<std::uint8_t, 16> bytes{};  // IPv4 uses the first four
};

// One item of --network.
struct NetworkRule {
  std::string interface;  // a name or a pattern such as ib*; empty: addresses whose first `bits` are those of `network`
  IpAddress network;
  int bits = 0;
};

struct NetworkFilter {
  std::string text;                // as the user wrote it
  std::vector<NetworkRule> rules;  // best first; none: every address may be tried
};

// Which hosts the job uses, and how to reach them.
struct HostOptions {
  std::string list;
  std::string file;
  // If neither list nor file is given: use the scheduler's allocation, if any. If the scheduler started several copies
  // of this command, only one of them starts the job.
  bool detect = true;
  NetworkFilter network;
  SshOptions ssh;
  std::string launch_with;
  int fan_out = 32;  // the number of agents that one host starts
  int agents = 0;    // the number of agents that dial in; 0: distrun starts the agents
  std::string listen = "*:0";
  std::string key_file;
  std::string mpi;  // "mpirun", "hydra", "pmix" or "pmi2": MPI's launcher starts the ranks; empty: distrun does
  bool mpi_as_root = false;
  [[nodiscard]] bool named() const { return !list.empty() || !file.empty(); }
};

enum class BindTo { kAuto, kNone, kCore, kNuma, kGpu };  // kAuto: gpu on hosts with GPUs, else none
enum class GpuVisibility { kAuto, kAll, kOne };          // kAuto until all options are known

// How many ranks the job has, where they run, and which resources each gets.
struct PlacementOptions {
  int ranks = 0;           // 0: one for every slot
  int ranks_per_host = 0;  // 0: as many as the host has slots
  bool oversubscribe = false;
  BindTo bind_to = BindTo::kAuto;
  GpuVisibility gpu_visibility = GpuVisibility::kAuto;
  int gpus_per_rank = 0;  // 0: not given; then one, shared if a host has too few
  bool report_bindings = false;
  std::string sysroot = "/";
  [[nodiscard]] bool several_gpus() const { return gpus_per_rank > 1; }
};

enum class EnvMode { kDefault, kAll, kNone };

// The variables in the ranks' environment.
struct EnvironmentOptions {
  EnvMode mode = EnvMode::kDefault;
  std::vector<std::string> forwarded;  // -x VAR and -x VAR=value, in order
  std::string file;
  // Settings of the runtime that were given as flags: {"fusion_threshold", "1MiB"}. Below, the settings of the config
  // file; a DISTRUN_* variable takes precedence over those.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::pair<std::string, std::string>> file_settings;
};

// If the roles include a ps, the job is a ParameterServerStrategy cluster. The chief runs the program. The ps and
// worker ranks run a server of distrun and execute the chief's requests. With --tf-own-servers every role runs the
// program, which starts the servers itself, and its workers train.
enum class TfServers { kOurs, kOwn };

// Sets the variables of another launcher, for programs that read only those.
enum class Mimic { kNone, kOpenMpi, kSlurm };

struct FrameworkOptions {
  bool tf_config = true;
  bool tf = false;
  std::string tf_roles;
  TfServers tf_servers = TfServers::kOurs;
  bool tf_keras3_mwms = false;
  std::string torch_backend;  // the backend of torch.distributed if a program asks for gloo; empty: gloo
  bool horovod = false;
  Mimic mimic = Mimic::kNone;
  [[nodiscard]] bool for_tf() const { return tf || !tf_roles.empty(); }
};

enum class TagStyle { kNone, kRank, kHost };
enum class Folding { kOnTerminal, kAlways, kNever };

// A rank's standard input: nothing, the user's input, or the user's input and a terminal for all three streams.
enum class RankInput : std::uint8_t { kNone = 0, kPipe = 1, kTerminal = 2 };

// Which ranks get the user's input.
struct InputRequest {
  static constexpr int kAll = -1;
  static constexpr int kNoRank = -2;
  int rank = 0;            // or kAll, kNobody
  int terminal = kNoRank;  // this rank has a terminal
  bool named = false;      // --stdin or --tty was given
  bool program = false;    // the program itself comes from standard input, so all ranks get it
  [[nodiscard]] RankInput of(int number) const {
    if (number == terminal) return RankInput::kTerminal;
    return number == rank || rank == kAll ? RankInput::kPipe : RankInput::kNone;
  }
};

// The user's input and output.
struct OutputOptions {
  TagStyle tag = TagStyle::kRank;
  bool timestamp = false;
  Folding fold = Folding::kOnTerminal;
  std::string directory;  // empty: no files
  std::string report;     // a file for the report on the job's end; empty: none
  InputRequest input;
  bool all_errors = false;  // false: follow-up errors are kept back
};

// When the job ends, and how.
struct EndOptions {
  double timeout = 0;  // seconds for the whole job; 0: none
  bool check = false;  // `distrun check`, which names the hosts that did not answer in time
  double grace = 10;   // seconds that ranks have to end before KILL
  bool grace_given = false;
  // Seconds that ranks have after a notice. None: the sender of the notice ends the job when its time is over.
  [[nodiscard]] std::optional<double> stop_limit() const { return grace_given ? std::optional(grace) : std::nullopt; }
};

struct Options {
  HostOptions hosts;
  PlacementOptions placement;
  EnvironmentOptions environment;
  FrameworkOptions frameworks;
  OutputOptions output;
  EndOptions end;

  bool verbose = false;              // print the reasons of the plan before ranks start
  std::string explain;               // "", "text" or "json"
  bool module = false;               // -m: program[0] is a Python module
  std::vector<std::string> program;  // with its arguments
};

}  // namespace distrun::launcher
