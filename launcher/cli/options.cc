#include "launcher/cli/options.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "launcher/plan/hosts/text.h"
#include "launcher/plan/schedulers/mpi.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {
namespace {

constexpr int kMaxGpusPerRank = 1024;

template <class Value, std::size_t kCount>
using Choices = std::array<std::pair<std::string_view, Value>, kCount>;

template <class Value, std::size_t kCount>
Status choose(std::string_view option, const std::string& text, const Choices<Value, kCount>& choices, Value& out) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    names.emplace_back(name);
    if (name != text) continue;
    out = value;
    return {};
  }
  return {Errc::kInvalidArgument,
          std::string(option) + " " + text + " is not known; choose one of " + join(names, ", ")};
}

Status read_seconds(std::string_view option, const std::string& text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  constexpr double kMost = 3e6;  // a month and more; fits the messages to agents, which count milliseconds
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !(out >= 0) || out > kMost) {
    return {Errc::kInvalidArgument,
            std::string(option) + " " + text + " is not a time; write seconds from 0 to 3000000, as in 30 or 0.5"};
  }
  return {};
}

Status read_ranks(const std::string& option, const std::string& text, int& out) {
  if (text.empty()) return {};
  const auto ranks = parse_number(text, 1, kMaxRanks);
  if (!ranks) {
    const bool all_gpus = text == "gpu" || text == "auto";  // to torchrun
    return {Errc::kInvalidArgument, option + " " + text + ": " + in_quotes(text) + " is not a number of ranks; " +
                                        (all_gpus ? "for a rank on each GPU leave it out and name the hosts, as in "
                                                    "distrun -H localhost train.py"
                                                  : "write a whole number from 1 on")};
  }
  out = *ranks;
  return {};
}

// Which of its hosts have a user is not known yet.
Status check_launch_with(const std::string& pattern) {
  if (pattern.empty()) return {};
  return launch_argv(pattern, pattern.find("{user}") == std::string::npos ? "" : "user", "host", "agent").status();
}

Status check_reach(const RawOptions& raw, Options& out) {
  if (!raw.ssh_port.empty()) {
    const auto port = parse_number(raw.ssh_port, 1, 65535);
    if (!port) {
      return {Errc::kInvalidArgument, "--ssh-port " + raw.ssh_port + " is not a port; write a number from 1 to 65535"};
    }
    out.ssh.port = *port;
  }
  if (!raw.network.empty()) {
    auto network = parse_network(raw.network);
    if (!network.ok()) return network.status();
    out.network = *std::move(network);
  }
  return check_launch_with(out.launch_with);
}

Status check_agents(const RawOptions& raw, Options& out) {
  DISTRUN_RETURN_IF_ERROR(read_ranks("--agents", raw.agents, out.agents));
  if (!raw.listen.empty()) {
    const bool port_alone = parse_number(raw.listen, 0, 65535).has_value();
    out.listen = port_alone ? "*:" + raw.listen : raw.listen;
    if (const auto address = net::parse_address(out.listen); !address.ok()) {
      return address.status().with_context("--listen");
    }
  }
  if (out.agents == 0 && (!raw.listen.empty() || !out.key_file.empty())) {
    return {Errc::kInvalidArgument, std::string(raw.listen.empty() ? "--key-file" : "--listen") +
                                        " is for agents that dial in; say how many with --agents N"};
  }
  if (out.agents > 0 && out.key_file.empty()) {
    return {Errc::kInvalidArgument,
            "--agents needs --key-file, the same on all hosts: head -c 32 /dev/urandom > FILE; chmod 600 FILE"};
  }
  if (out.agents > 0 && !(out.hosts.empty() && out.hostfile.empty())) {
    return {Errc::kInvalidArgument,
            "--agents and -H or --hostfile exclude each other: the agents that dial in are the hosts"};
  }
  return {};
}

Status check_gpus(const RawOptions& raw, bool tf, Options& out) {
  if (!raw.gpus_per_rank.empty()) {
    const auto number = parse_number(raw.gpus_per_rank, 1, kMaxGpusPerRank);
    if (!number) {
      return {Errc::kInvalidArgument, "--gpus-per-rank " + raw.gpus_per_rank + ": " + in_quotes(raw.gpus_per_rank) +
                                          " is not a number of GPUs; write a whole number from 1 on"};
    }
    out.gpus_per_rank = *number;
  }
  // A rank of several GPUs could not tell from its local rank which of all are its own.
  const bool own_only = tf || out.gpus_per_rank > 1;
  return choose("--gpu-visibility", raw.gpu_visibility.empty() ? (own_only ? "one" : "all") : raw.gpu_visibility,
                Choices<GpuVisibility, 2>{{{"all", GpuVisibility::kAll}, {"one", GpuVisibility::kOne}}},
                out.gpu_visibility);
}

Status check_input(const RawOptions& raw, InputRequest& out) {
  if (!raw.terminal.empty()) {
    const auto rank = parse_number(raw.terminal, 0, kMaxRanks - 1);
    if (!rank) return {Errc::kInvalidArgument, "--tty " + raw.terminal + " is not a rank; write a number from 0 on"};
    out.terminal = *rank;
    out.rank = InputRequest::kNobody;
  }
  if (raw.input.empty()) return {};
  if (!raw.terminal.empty()) {
    return {Errc::kInvalidArgument, "--stdin and --tty exclude each other: the rank with the terminal gets the input"};
  }
  const auto rank = parse_number(raw.input, 0, kMaxRanks - 1);
  if (!rank && raw.input != "all" && raw.input != "none") {
    return {Errc::kInvalidArgument, "--stdin " + raw.input + " is not known; write none, all or a rank's number"};
  }
  out.rank = rank.value_or(raw.input == "all" ? InputRequest::kAll : InputRequest::kNobody);
  return {};
}

Status check_mpi(const Options& options) {
  if (options.mpi.empty()) return {};
  if (!parse_mpi_starter(options.mpi)) {
    return {Errc::kInvalidArgument, "--mpi=" + options.mpi +
                                        " is not known; write --mpi (by mpirun of Open MPI), "
                                        "--mpi=hydra (by mpiexec of MPICH or Intel MPI), --mpi=pmix or "
                                        "--mpi=pmi2 (by srun)"};
  }
  const bool ssh = options.ssh.port != 0 || !options.ssh.identity.empty() || !options.ssh.options.empty();
  if (options.agents == 0 && options.launch_with.empty() && !ssh) return {};
  return {
      Errc::kInvalidArgument,
      "--mpi reaches other hosts as MPI's launcher does: leave out --agents, --launch-with and --ssh-*, and put what "
      "ssh needs into ~/.ssh/config"};
}

}  // namespace

Status check_options(const RawOptions& raw, Options& out) {
  DISTRUN_RETURN_IF_ERROR(read_ranks("-np", raw.ranks, out.ranks));
  DISTRUN_RETURN_IF_ERROR(read_ranks("--nproc-per-node", raw.ranks_per_host, out.ranks_per_host));
  DISTRUN_RETURN_IF_ERROR(check_reach(raw, out));
  DISTRUN_RETURN_IF_ERROR(check_agents(raw, out));
  DISTRUN_RETURN_IF_ERROR(check_input(raw, out.input));
  DISTRUN_RETURN_IF_ERROR(check_mpi(out));
  DISTRUN_RETURN_IF_ERROR(choose("--bind-to", raw.bind_to,
                                 Choices<BindTo, 5>{{{"none", BindTo::kNone},
                                                     {"core", BindTo::kCore},
                                                     {"numa", BindTo::kNuma},
                                                     {"gpu", BindTo::kGpu},
                                                     {"auto", BindTo::kAuto}}},
                                 out.bind_to));
  DISTRUN_RETURN_IF_ERROR(
      choose("--env", raw.env_mode,
             Choices<EnvMode, 3>{{{"default", EnvMode::kDefault}, {"all", EnvMode::kAll}, {"none", EnvMode::kNone}}},
             out.env_mode));
  DISTRUN_RETURN_IF_ERROR(
      choose("--tag", raw.tag,
             Choices<TagStyle, 3>{{{"none", TagStyle::kNone}, {"rank", TagStyle::kRank}, {"host", TagStyle::kHost}}},
             out.tag));
  if (!out.torch_backend.empty() && out.torch_backend != "distrun") {
    return {Errc::kInvalidArgument, "--torch-backend " + out.torch_backend + ": distrun is the one that there is; " +
                                        "without it the program's own choice counts"};
  }
  // --tf is the mode for tf.distribute, which takes every GPU it sees; --tf-keras3-mwms and --tf-roles imply it.
  out.tf = out.tf || out.tf_keras3_mwms;
  const bool tf = out.tf || !out.tf_roles.empty();
  if (tf && raw.no_tf_config) {
    return {Errc::kInvalidArgument,
            std::string(out.tf ? "--tf" : "--tf-roles") + " needs TF_CONFIG; leave out --no-tf-config"};
  }
  if (out.tf_own_servers && out.tf_roles.empty()) {
    return {Errc::kInvalidArgument, "--tf-own-servers needs --tf-roles, as in --tf-roles ps=1,worker=2"};
  }
  DISTRUN_RETURN_IF_ERROR(check_gpus(raw, tf, out));
  if (raw.fold && raw.no_fold) return {Errc::kInvalidArgument, "--fold and --no-fold exclude each other"};
  if (raw.fold || raw.no_fold) out.fold = raw.fold ? Folding::kAlways : Folding::kNever;
  DISTRUN_RETURN_IF_ERROR(choose(
      "--mimic", raw.mimic.empty() ? "none" : raw.mimic,
      Choices<Mimic, 3>{{{"openmpi", Mimic::kOpenMpi}, {"slurm", Mimic::kSlurm}, {"none", Mimic::kNone}}}, out.mimic));
  if (out.mimic != Mimic::kNone && !out.mpi.empty()) {
    return {Errc::kInvalidArgument, "--mimic and --mpi exclude each other: with --mpi ranks have the real variables"};
  }
  out.tf_config = !raw.no_tf_config;
  out.detect = !raw.no_detect;
  DISTRUN_RETURN_IF_ERROR(read_seconds("--timeout", raw.timeout, out.timeout));
  DISTRUN_RETURN_IF_ERROR(read_seconds("--grace", raw.grace, out.grace));
  for (const std::string& item : out.forwarded) {
    if (!valid_variable_name(item.substr(0, item.find('=')))) {
      return {Errc::kInvalidArgument, "-x " + item + " does not name a variable; write -x NAME or -x NAME=value"};
    }
  }
  if (!out.hosts.empty() && !out.hostfile.empty()) {
    return {Errc::kInvalidArgument, "-H and --hostfile both name hosts; give one of them"};
  }
  return {};
}

Status check_typed(const std::set<std::string>& typed, const Options& options) {
  if (options.agents == 0 && options.launch_with.empty()) return {};
  const bool dial_in = options.agents > 0;
  for (const char* name : {"--launch-with", "--ssh-port", "--ssh-identity", "--ssh-option"}) {
    if (!typed.contains(name) || (!dial_in && std::string_view(name) == "--launch-with")) continue;
    return {Errc::kInvalidArgument, std::string(dial_in ? "--agents" : "--launch-with") + " and " + name +
                                        " exclude each other: " +
                                        (dial_in ? "something else starts the agents" : "no ssh of distrun's is used") +
                                        "; leave one of them out"};
  }
  return {};
}

}  // namespace distrun::launcher
