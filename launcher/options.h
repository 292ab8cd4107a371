// What the user asks for: one typed value, made from the command line, the config file and the environment, and only
// read afterwards. Each part of the launcher gets the group that it needs. cli/arguments.cc has a row for each option.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distrun::launcher {

struct SshOptions {
  int port = 0;                      // 0: as ssh's own configuration says
  std::string identity;              // empty: likewise
  std::vector<std::string> options;  // each as after ssh's -o
  [[nodiscard]] bool given() const { return port != 0 || !identity.empty() || !options.empty(); }
};

struct IpAddress {
  bool v6 = false;
  std::array<std::uint8_t, 16> bytes{};  // of IPv4 the first four
};

// One item of --network.
struct NetworkRule {
  std::string interface;  // a name or a pattern such as ib*; empty: addresses whose first `bits` are those of `network`
  IpAddress network;
  int bits = 0;
};

struct NetworkFilter {
  std::string text;                // as the user wrote it
  std::vector<NetworkRule> rules;  // the earlier, the better; none: everything may be tried
};

// Which hosts there are, and how they are reached.
struct HostOptions {
  std::string list;
  std::string file;
  // With neither of them: use the allocation that there is. And start one job, if this is one of several copies.
  bool detect = true;
  NetworkFilter network;
  SshOptions ssh;
  std::string launch_with;
  int fan_out = 32;  // agents that one host starts
  int agents = 0;    // how many dial in; 0: we start them
  std::string listen = "*:0";
  std::string key_file;
  std::string mpi;  // "mpirun", "pmix" or "pmi2": MPI's launcher starts the ranks; empty: ours does
  [[nodiscard]] bool named() const { return !list.empty() || !file.empty(); }
};

enum class BindTo { kAuto, kNone, kCore, kNuma, kGpu };  // kAuto: gpu where there are GPUs, else none
enum class GpuVisibility { kAuto, kAll, kOne };          // kAuto until all options are known

// How many ranks there are, where they run, and what each has there.
struct PlacementOptions {
  int ranks = 0;           // 0: one for every slot
  int ranks_per_host = 0;  // 0: as many as the host has slots
  bool oversubscribe = false;
  BindTo bind_to = BindTo::kAuto;
  GpuVisibility gpu_visibility = GpuVisibility::kAuto;
  int gpus_per_rank = 0;  // 0: not given; one, shared where there are too few
  bool report_bindings = false;
  std::string sysroot = "/";
  [[nodiscard]] bool several_gpus() const { return gpus_per_rank > 1; }
};

enum class EnvMode { kDefault, kAll, kNone };

// What the ranks' environment has.
struct EnvironmentOptions {
  EnvMode mode = EnvMode::kDefault;
  std::vector<std::string> forwarded;  // -x VAR and -x VAR=value, in order
  std::string file;
  // Settings of the runtime that were given as flags: {"fusion_threshold", "1MiB"}; and in the config file, where a
  // DISTRUN_* variable wins over them.
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::pair<std::string, std::string>> file_settings;
};

// With a ps among the roles the job is a ParameterServerStrategy cluster: its ps and worker ranks run a server of ours
// and do what the chief, which runs the program, tells them. Or, with --tf-own-servers, every role runs the program,
// which starts servers itself; its workers train.
enum class TfServers { kOurs, kOwn };

// Variables of another launcher, for programs that look for those only.
enum class Mimic { kNone, kOpenMpi, kSlurm };

struct FrameworkOptions {
  bool tf_config = true;
  bool tf = false;
  std::string tf_roles;
  TfServers tf_servers = TfServers::kOurs;
  bool tf_keras3_mwms = false;
  std::string torch_backend;  // what torch.distributed uses where a program says gloo; empty: gloo
  bool horovod = false;
  Mimic mimic = Mimic::kNone;
  [[nodiscard]] bool for_tf() const { return tf || !tf_roles.empty(); }
};

enum class TagStyle { kNone, kRank, kHost };
enum class Folding { kOnTerminal, kAlways, kNever };

// What a rank's standard input is: nothing, what the user types, or that and a terminal for all three streams.
enum class RankInput : std::uint8_t { kNone = 0, kPipe = 1, kTerminal = 2 };

// Who gets what the user types.
struct InputRequest {
  static constexpr int kAll = -1;
  static constexpr int kNobody = -2;
  int rank = 0;            // or kAll, kNobody
  int terminal = kNobody;  // this rank has a terminal of its own
  [[nodiscard]] RankInput of(int number) const {
    if (number == terminal) return RankInput::kTerminal;
    return number == rank || rank == kAll ? RankInput::kPipe : RankInput::kNone;
  }
};

// What the user sees and types.
struct OutputOptions {
  TagStyle tag = TagStyle::kRank;
  bool timestamp = false;
  Folding fold = Folding::kOnTerminal;
  std::string directory;  // empty: no files
  std::string report;     // a file for how the job ended; empty: none
  InputRequest input;
  bool all_errors = false;  // else follow-up errors are kept back
};

// When the job ends, and how.
struct EndOptions {
  double timeout = 0;  // seconds for the whole job; 0: none
  bool check = false;  // it is `distrun check`, which says which hosts it has waited for in vain
  double grace = 10;   // seconds that ranks have to end before KILL
  bool grace_given = false;
  // Seconds that ranks have after a notice; none: whoever gave it ends the job when it must.
  [[nodiscard]] std::optional<double> stop_limit() const { return grace_given ? std::optional(grace) : std::nullopt; }
};

struct Options {
  HostOptions hosts;
  PlacementOptions placement;
  EnvironmentOptions environment;
  FrameworkOptions frameworks;
  OutputOptions output;
  EndOptions end;

  bool verbose = false;              // tell the reasons of the plan before ranks start
  std::string explain;               // "", "text" or "json"
  bool module = false;               // -m: program[0] is a Python module
  std::vector<std::string> program;  // with its arguments
};

}  // namespace distrun::launcher
