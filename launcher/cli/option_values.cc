#include "launcher/cli/option_values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/network/network.h"
#include "launcher/plan/schedulers/mpi.h"
#include "launcher/spawn/remote_command.h"
#include "runtime/net/bytes/socket.h"

namespace distrun::launcher {
namespace {

constexpr int kMostGpus = 1024;

template <class Value, std::size_t kCount>
using Choices = std::array<std::pair<std::string_view, Value>, kCount>;

template <class Value, std::size_t kCount>
Status choose(const std::string& option, const std::string& text, const Choices<Value, kCount>& choices, Value& out) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    names.emplace_back(name);
    if (name != text) continue;
    out = value;
    return {};
  }
  return {Errc::kInvalidArgument, option + " " + text + " is not valid: choose one of " + join(names, ", ")};
}

Status check_agents(const std::set<std::string>& given, const HostOptions& hosts) {
  const bool listens = given.contains("--listen");
  if (hosts.agents == 0 && (listens || !hosts.key_file.empty())) {
    return {Errc::kInvalidArgument,
            std::string(listens ? "--listen" : "--key-file") +
                " is only for agents that connect by themselves: also give their number with --agents N"};
  }
  if (hosts.agents > 0 && hosts.key_file.empty()) {
    return {
        Errc::kInvalidArgument,
        "--agents needs --key-file, with the same file on all hosts. Make one: head -c 32 /dev/urandom > FILE; chmod "
        "600 FILE"};
  }
  if (hosts.agents > 0 && hosts.named()) {
    return {Errc::kInvalidArgument,
            "leave out -H and --hostfile: with --agents, the hosts are those whose agents connect"};
  }
  return {};
}

Status check_mpi(const HostOptions& hosts) {
  if (hosts.mpi_as_root && hosts.mpi != "mpirun") {
    return {Errc::kInvalidArgument,
            "leave out --allow-run-as-root. root may start jobs; only mpirun, which --mpi uses, "
            "asks for this option"};
  }
  if (hosts.mpi.empty()) return {};
  if (!parse_mpi_starter(hosts.mpi)) {
    return {Errc::kInvalidArgument, "--mpi=" + hosts.mpi +
                                        " is not valid. Write --mpi for Open MPI's mpirun, --mpi=hydra for mpiexec of "
                                        "MPICH or Intel MPI, --mpi=pmix or --mpi=pmi2 for srun"};
  }
  if (hosts.agents == 0 && hosts.launch_with.empty() && !hosts.ssh.given()) return {};
  return {
      Errc::kInvalidArgument,
      "leave out --agents, --launch-with and --ssh-*: with --mpi, MPI's launcher reaches the hosts. Write options of "
      "ssh into ~/.ssh/config"};
}

Status check_hosts(const std::set<std::string>& given, const HostOptions& hosts) {
  if (!hosts.list.empty() && !hosts.file.empty()) {
    return {Errc::kInvalidArgument, "-H and --hostfile cannot be used together: leave one of them out"};
  }
  if (!hosts.launch_with.empty()) {
    // It is not known yet which of the hosts have a user.
    const bool users = hosts.launch_with.find("{user}") != std::string::npos;
    DISTRUN_RETURN_IF_ERROR(launch_argv(hosts.launch_with, users ? "user" : "", "host", "agent").status());
  }
  DISTRUN_RETURN_IF_ERROR(check_agents(given, hosts));
  return check_mpi(hosts);
}

Status complete_frameworks(FrameworkOptions& out) {
  if (!out.torch_backend.empty() && out.torch_backend != "distrun") {
    return {Errc::kInvalidArgument,
            "--torch-backend " + out.torch_backend +
                " is not valid: write --torch-backend distrun, or leave it out to use the backend that the "
                "program asks for"};
  }
  // --tf is the mode for tf.distribute, which takes every GPU it sees. --tf-keras3-mwms implies it; --tf-roles has the
  // same effect.
  out.tf = out.tf || out.tf_keras3_mwms;
  if (out.for_tf() && !out.tf_config) {
    return {Errc::kInvalidArgument,
            std::string(out.tf ? "--tf" : "--tf-roles") + " needs TF_CONFIG: leave out --no-tf-config"};
  }
  if (out.tf_servers == TfServers::kOwn && out.tf_roles.empty()) {
    return {Errc::kInvalidArgument, "--tf-own-servers needs --tf-roles too, as in --tf-roles ps=1,worker=2"};
  }
  return {};
}

}  // namespace

Status read_ranks(const std::string& option, const std::string& text, int& out) {
  if (text.empty()) return {};
  const auto ranks = parse_number(text, 1, kMaxRanks);
  if (!ranks && text.find_first_not_of("0123456789") == std::string::npos && text.find_first_not_of('0') == 0) {
    return {Errc::kInvalidArgument,
            option + " " + text + ": a job has at most " + std::to_string(kMaxRanks) + " ranks"};
  }
  if (!ranks) {
    const bool all_gpus = text == "gpu" || text == "auto";  // torchrun's words for this
    return {Errc::kInvalidArgument, option + " " + text + ": " + in_quotes(text) + " is not a number of ranks. " +
                                        (all_gpus ? "For a rank on each GPU, leave it out and name the hosts, as in "
                                                    "distrun -H localhost train.py"
                                                  : "Write a whole number, 1 or more")};
  }
  out = *ranks;
  return {};
}

Status read_gpus(const std::string& option, const std::string& text, int& out) {
  if (text.empty()) return {};
  const auto number = parse_number(text, 1, kMostGpus);
  if (!number) {
    return {Errc::kInvalidArgument,
            option + " " + text + ": " + in_quotes(text) + " is not a number of GPUs. Write a whole number, 1 or more"};
  }
  out = *number;
  return {};
}

Status read_port(const std::string& option, const std::string& text, int& out) {
  if (text.empty()) return {};
  const auto port = parse_number(text, 1, 65535);
  if (!port) return {Errc::kInvalidArgument, option + " " + text + " is not a port: write a number from 1 to 65535"};
  out = *port;
  return {};
}

Status read_stdin(const std::string& option, const std::string& text, InputRequest& out) {
  if (text.empty()) return {};
  const auto rank = parse_number(text, 0, kMaxRanks - 1);
  if (!rank && text != "all" && text != "none") {
    return {Errc::kInvalidArgument, option + " " + text + " is not valid: write none, all or the number of a rank"};
  }
  out.rank = rank.value_or(text == "all" ? InputRequest::kAll : InputRequest::kNoRank);
  return {};
}

Status read_tty(const std::string& option, const std::string& text, InputRequest& out) {
  if (text.empty()) return {};
  const auto rank = parse_number(text, 0, kMaxRanks - 1);
  if (!rank) return {Errc::kInvalidArgument, option + " " + text + " is not a rank: write its number, 0 or more"};
  out.terminal = *rank;
  return {};
}

Status read_seconds(const std::string& option, const std::string& text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  // More than a month. Fits the messages to agents, which count milliseconds.
  constexpr double kMost = 3e6;
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !(out >= 0) || out > kMost) {
    return {Errc::kInvalidArgument,
            option + " " + text + " is not a time: write seconds from 0 to 3000000, as in 30 or 0.5"};
  }
  return {};
}

Status read_network(const std::string&, const std::string& text, NetworkFilter& out) {
  if (text.empty()) return {};
  auto network = parse_network(text);
  if (!network.ok()) return network.status();
  out = *std::move(network);
  return {};
}

Status read_listen(const std::string& option, const std::string& text, std::string& out) {
  if (text.empty()) return {};
  const bool port_alone = parse_number(text, 0, 65535).has_value();
  out = port_alone ? "*:" + text : text;
  const auto address = net::parse_address(out);
  return address.ok() ? Status() : address.status().with_context(option);
}

Status read_choice(const std::string& option, const std::string& text, BindTo& out) {
  return choose(option, text,
                Choices<BindTo, 5>{{{"none", BindTo::kNone},
                                    {"core", BindTo::kCore},
                                    {"numa", BindTo::kNuma},
                                    {"gpu", BindTo::kGpu},
                                    {"auto", BindTo::kAuto}}},
                out);
}

Status read_choice(const std::string& option, const std::string& text, GpuVisibility& out) {
  if (text.empty()) return {};
  return choose(option, text, Choices<GpuVisibility, 2>{{{"all", GpuVisibility::kAll}, {"one", GpuVisibility::kOne}}},
                out);
}

Status read_choice(const std::string& option, const std::string& text, EnvMode& out) {
  return choose(option, text,
                Choices<EnvMode, 3>{{{"default", EnvMode::kDefault}, {"all", EnvMode::kAll}, {"none", EnvMode::kNone}}},
                out);
}

Status read_choice(const std::string& option, const std::string& text, Mimic& out) {
  if (text.empty()) return {};
  return choose(option, text,
                Choices<Mimic, 3>{{{"openmpi", Mimic::kOpenMpi}, {"slurm", Mimic::kSlurm}, {"none", Mimic::kNone}}},
                out);
}

Status read_choice(const std::string& option, const std::string& text, TagStyle& out) {
  return choose(option, text,
                Choices<TagStyle, 3>{{{"none", TagStyle::kNone}, {"rank", TagStyle::kRank}, {"host", TagStyle::kHost}}},
                out);
}

Status complete_options(const std::set<std::string>& given, Options& out) {
  DISTRUN_RETURN_IF_ERROR(check_hosts(given, out.hosts));
  InputRequest& input = out.output.input;
  input.named = given.contains("--stdin") || input.terminal != InputRequest::kNoRank;
  if (input.terminal != InputRequest::kNoRank) {
    if (given.contains("--stdin")) {
      return {Errc::kInvalidArgument, "leave out --stdin: with --tty, the rank with the terminal gets the input"};
    }
    input.rank = InputRequest::kNoRank;
  }
  DISTRUN_RETURN_IF_ERROR(complete_frameworks(out.frameworks));
  // With several GPUs per rank, a rank could not tell its own GPUs by its local rank.
  const bool own_only = out.frameworks.for_tf() || out.placement.several_gpus();
  GpuVisibility& visibility = out.placement.gpu_visibility;
  if (visibility == GpuVisibility::kAuto) visibility = own_only ? GpuVisibility::kOne : GpuVisibility::kAll;
  if (out.frameworks.mimic != Mimic::kNone && !out.hosts.mpi.empty()) {
    return {Errc::kInvalidArgument, "leave out --mimic: with --mpi, MPI's launcher sets the real variables"};
  }
  out.end.grace_given = given.contains("--grace");
  for (const std::string& item : out.environment.forwarded) {
    if (!valid_variable_name(item.substr(0, item.find('=')))) {
      return {Errc::kInvalidArgument,
              "-x " + item + " has no valid name of a variable: write -x NAME or -x NAME=value"};
    }
  }
  return {};
}

Status check_typed(const std::set<std::string>& typed, const Options& options) {
  if (options.hosts.agents == 0 && options.hosts.launch_with.empty()) return {};
  const bool dial_in = options.hosts.agents > 0;
  for (const char* name : {"--launch-with", "--ssh-port", "--ssh-identity", "--ssh-option"}) {
    if (!typed.contains(name) || (!dial_in && std::string_view(name) == "--launch-with")) continue;
    return {Errc::kInvalidArgument, std::string("leave out ") + name + ": with " +
                                        (dial_in ? "--agents, something else starts the agents"
                                                 : "--launch-with, your command reaches the hosts")};
  }
  return {};
}

}  // namespace distrun::launcher
