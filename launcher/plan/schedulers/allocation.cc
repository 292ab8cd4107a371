#include "launcher/plan/schedulers/allocation.h"

#include <algorithm>
#include <array>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/hostlist.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/place/assign.h"
#include "launcher/plan/schedulers/slurm.h"

namespace distrun::launcher {
namespace {

using Found = Result<std::optional<Allocation>>;

Found nothing() { return std::optional<Allocation>(); }

Status broken(const std::string& variable, const Status& why) {
  return {Errc::kSystem, variable + " cannot be used: " + why.message() +
                             "\nName the hosts with -H or --hostfile, or add --no-detect to run on this machine."};
}

// The next word of a line and its column; empty at the end.
std::string_view next_word(std::string_view line, std::size_t& column) {
  constexpr std::string_view kBlank = " \t\r";
  column = std::min(line.find_first_not_of(kBlank, column), line.size());
  return line.substr(column, line.find_first_of(kBlank, column) - column);
}

// Reads "host 4" at `column`, and moves `column` to the end of it.
std::optional<Fault> read_pair(std::string_view line, std::size_t& column, std::vector<HostSlots>& hosts) {
  const std::string_view name = next_word(line, column);
  if (auto fault = check_host_name(name)) {
    fault->column += column;
    return fault;
  }
  column += name.size();
  const std::string_view slots = next_word(line, column);
  const auto count = parse_number(slots, 0, kMaxRanks);
  if (!count) return Fault{column, in_quotes(slots) + " is not a number of slots"};
  column += slots.size();
  if (hosts.size() == kMaxHosts) return Fault{column, "there are more than " + std::to_string(kMaxHosts) + " hosts"};
  hosts.push_back({.name = std::string(name), .slots = *count});
  return std::nullopt;
}

constexpr char kByGpus[] = "one per GPU, or 1 without GPUs";

// Schedulers and MPI's launchers give one slot to a host if the user asked for no number. There the host's GPUs count.
void count_gpus(HostSlots& host) {
  host.slots.reset();
  host.without_gpus = 1;
}

// Returns a text on where the slots come from.
std::string count_gpus_if_one_each(std::vector<HostSlots>& hosts, const std::string& otherwise) {
  if (std::any_of(hosts.begin(), hosts.end(), [](const HostSlots& host) { return host.slots.value_or(1) > 1; }))
    return otherwise;
  for (HostSlots& host : hosts) {
    if (host.slots != 0) count_gpus(host);
  }
  return kByGpus;
}

Result<std::vector<HostSlots>> read_nodefile(const std::string& path, const ReadFile& read_file) {
  auto text = read_file(path);
  return text.ok() ? parse_hostfile(*text, path) : text.status();
}

// Advice if the scheduler itself can start a program on another host of the job. It is not done by default, since sites
// have many versions of these tools, and ssh works on most.
std::string advice_on_tasks(const std::vector<HostSlots>& hosts, const std::string& launch_with) {
  if (hosts.size() < 2) return {};
  return "To keep ranks on other hosts inside the job, with its GPUs and limits, add --launch-with '" + launch_with +
         "'";
}

// pbs_tmrsh is no choice: it would put the agents' output into the job's files. Torque has no pbs_attach.
std::string advice_on_pbs(const Environment& environment, const std::vector<HostSlots>& hosts) {
  const std::string job = value_of(environment, "PBS_JOBID");
  if (job.empty() || value_of(environment, "PBS_VERSION").starts_with("TORQUE")) return {};
  return advice_on_tasks(hosts, "ssh {host} pbs_attach -j " + job + R"( sh -c "\"{agent}\"")");
}

Found pbs_allocation(const Environment& environment, const ReadFile& read_file) {
  const std::string path = value_of(environment, "PBS_NODEFILE");
  if (path.empty()) return nothing();
  auto hosts = read_nodefile(path, read_file);
  if (!hosts.ok()) return broken("PBS_NODEFILE", hosts.status());
  std::string advice = advice_on_pbs(environment, *hosts);
  std::string slots_are = count_gpus_if_one_each(*hosts, "one per line of PBS_NODEFILE");
  return std::optional<Allocation>({.source = "PBS job " + value_of(environment, "PBS_JOBID"),
                                    .hosts = *std::move(hosts),
                                    .slots_are = std::move(slots_are),
                                    .more_slots = "ask PBS for more (-l select=N:mpiprocs=M)",
                                    .advice = std::move(advice)});
}

// "hostA 4 hostB 8".
Result<std::vector<HostSlots>> parse_mcpu_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  for (std::size_t column = 0; !next_word(text, column).empty() || hosts.empty();) {
    if (const auto fault = read_pair(text, column, hosts)) {
      return Status(Errc::kInvalidArgument, caret_error("LSB_MCPU_HOSTS", text, *fault));
    }
  }
  return hosts;
}

Found lsf_allocation(const Environment& environment, const ReadFile& read_file) {
  const std::string pairs = value_of(environment, "LSB_MCPU_HOSTS");
  const std::string path = value_of(environment, "LSB_DJOB_HOSTFILE");
  if (pairs.empty() && path.empty()) return nothing();
  auto hosts = pairs.empty() ? read_nodefile(path, read_file) : parse_mcpu_hosts(pairs);
  if (!hosts.ok()) return broken(pairs.empty() ? "LSB_DJOB_HOSTFILE" : "LSB_MCPU_HOSTS", hosts.status());
  std::vector<HostSlots> merged = merge_same_names(*std::move(hosts));
  // Like ssh, blaunch passes one text to a shell and carries standard input.
  std::string advice = advice_on_tasks(merged, "blaunch {host} {agent}");
  std::string slots_are = count_gpus_if_one_each(merged, pairs.empty() ? "one per line of LSB_DJOB_HOSTFILE" : "");
  return std::optional<Allocation>({.source = "LSF job " + value_of(environment, "LSB_JOBID"),
                                    .hosts = std::move(merged),
                                    .slots_are = std::move(slots_are),
                                    .more_slots = "ask LSF for more (-n, -R span[ptile=N])",
                                    .advice = std::move(advice)});
}

// Lines of "host slots queue processors".
Result<std::vector<HostSlots>> parse_pe_hostfile(std::string_view text, const std::string& path) {
  std::vector<HostSlots> hosts;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::size_t column = 0;
    if (trim(line).empty()) continue;
    if (const auto fault = read_pair(line, column, hosts)) {
      return Status(Errc::kInvalidArgument, file_error(path, number, line, *fault));
    }
  }
  if (hosts.empty()) return Status(Errc::kInvalidArgument, path + " names no host");
  return hosts;
}

Found grid_engine_allocation(const Environment& environment, const ReadFile& read_file) {
  const std::string path = value_of(environment, "PE_HOSTFILE");
  if (path.empty()) return nothing();
  auto text = read_file(path);
  if (!text.ok()) return broken("PE_HOSTFILE", text.status());
  auto hosts = parse_pe_hostfile(*text, path);
  if (!hosts.ok()) return broken("PE_HOSTFILE", hosts.status());
  std::vector<HostSlots> merged = merge_same_names(*std::move(hosts));
  // Without -V, which would replace the variables of the other host by those of this host.
  std::string advice = advice_on_tasks(merged, "qrsh -inherit {host} {agent}");
  std::string slots_are = count_gpus_if_one_each(merged, "");
  return std::optional<Allocation>({.source = "Grid Engine job " + value_of(environment, "JOB_ID"),
                                    .hosts = std::move(merged),
                                    .slots_are = std::move(slots_are),
                                    .more_slots = "ask Grid Engine for more (-pe NAME N)",
                                    .advice = std::move(advice)});
}

struct HostfileVariable {
  const char* name;
  const char* whose;
  bool hydra;  // for MPI a host without a number has one slot
};

constexpr char kOperatorHostfile[] = "/etc/mpi/hostfile";

// Open MPI writes "none", or a file of comments only, for "no default hostfile".
bool says_nothing(const std::string& path, const Result<std::string>& text) {
  if (path == "none") return true;
  if (!text.ok()) return false;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trim(rest.substr(0, end));
    if (!line.empty() && line.front() != '#') return false;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return true;
}

Found of_hostfile(const std::string& path, std::vector<HostSlots> hosts, const std::string& whose, bool hydra) {
  bool by_gpus = false;
  for (HostSlots& host : hosts) {
    if (!hydra || host.slots) continue;
    count_gpus(host);
    by_gpus = true;
  }
  const bool kubernetes = path == kOperatorHostfile;
  return std::optional<Allocation>(
      {.source = (kubernetes ? "the Kubernetes MPI operator's " : whose + " hostfile ") + path,
       .hosts = std::move(hosts),
       .slots_are = by_gpus ? "where no number is given: " + std::string(kByGpus) : "",
       .more_slots =
           kubernetes ? "raise slotsPerWorker or the replicas of the MPIJob" : "write more slots into " + path});
}

// The pods of the operator's first version have no ssh, and a script for Open MPI that replaces it. That script does
// not carry standard input.
std::string advice_of(const Environment& environment) {
  const std::string agent = value_of(environment, "OMPI_MCA_plm_rsh_agent");
  if (!agent.ends_with("/kubexec.sh")) return {};
  return "Add --launch-with '/opt/kube/kubectl exec -i {host} -- sh -c {agent}': these pods have no ssh "
         "(OMPI_MCA_plm_rsh_agent=" +
         agent + ")";
}

Found from_variable(const HostfileVariable& variable, const Environment& environment, const ReadFile& read_file) {
  const std::string path = value_of(environment, variable.name);
  if (path.empty()) return nothing();
  const auto text = read_file(path);
  if (!variable.hydra && says_nothing(path, text)) return nothing();
  if (!text.ok()) return broken(variable.name, text.status());
  auto hosts = parse_hostfile(*text, path);
  if (!hosts.ok()) return broken(variable.name, hosts.status());
  auto found = of_hostfile(path, *std::move(hosts), variable.whose, variable.hydra);
  (*found)->advice = advice_of(environment);
  return found;
}

Found hostfile_of_mpi(const Environment& environment, const ReadFile& read_file) {
  static constexpr std::array<HostfileVariable, 4> kVariables = {{
      {"OMPI_MCA_orte_default_hostfile", "Open MPI's default", false},
      {"PRTE_MCA_prte_default_hostfile", "Open MPI's default", false},
      {"HYDRA_HOST_FILE", "MPICH's", true},
      {"I_MPI_HYDRA_HOST_FILE", "Intel MPI's", true},
  }};
  for (const HostfileVariable& variable : kVariables) {
    auto found = from_variable(variable, environment, read_file);
    if (!found.ok() || *found) return found;
  }
  // A shell that was opened later in the launcher's container lacks the operator's variables.
  if (value_of(environment, "KUBERNETES_SERVICE_HOST").empty()) return nothing();
  const auto text = read_file(kOperatorHostfile);
  if (!text.ok()) return nothing();
  auto hosts = parse_hostfile(*text, kOperatorHostfile);
  if (!hosts.ok()) return broken(kOperatorHostfile, hosts.status());
  auto found = of_hostfile(kOperatorHostfile, *std::move(hosts), "", false);
  (*found)->advice = advice_of(environment);
  return found;
}

bool has_host(const Allocation& allocation, const std::string& name) {
  return std::any_of(allocation.hosts.begin(), allocation.hosts.end(),
                     [&](const HostSlots& own) { return own.name == name; });
}

// The advice also applies if the user has named hosts of the allocation.
std::string note_on_ssh(const Allocation& allocation, const std::vector<HostSlots>& named,
                        const std::vector<std::string>& own_names) {
  const bool concerned = std::any_of(named.begin(), named.end(), [&](const HostSlots& host) {
    return has_host(allocation, host.name) && !names_this_machine(host.name, host.user, own_names);
  });
  return concerned && !allocation.advice.empty() ? "found " + allocation.source + ". " + allocation.advice : "";
}

}  // namespace

Found detect_allocation(const Environment& environment, const ReadFile& read_file) {
  auto slurm = slurm_allocation(environment);
  if (!slurm.ok()) return broken("the Slurm allocation", slurm.status());
  if (*slurm) return slurm;
  // A scheduler overrides a hostfile that some profile may have set.
  for (const auto& ask : {pbs_allocation, lsf_allocation, grid_engine_allocation, hostfile_of_mpi}) {
    auto found = ask(environment, read_file);
    if (!found.ok() || *found) return found;
  }
  return nothing();
}

Reach reach_of_named(const Allocation& allocation, const std::vector<HostSlots>& hosts,
                     const std::vector<std::string>& own_names) {
  if (allocation.launch_with.empty()) return {.note = note_on_ssh(allocation, hosts, own_names)};
  std::vector<HostSlots> others;
  for (const HostSlots& host : hosts) {
    const auto& beside = allocation.beside;
    const bool known =
        has_host(allocation, host.name) || std::find(beside.begin(), beside.end(), host.name) != beside.end();
    if (!(known && host.user.empty()) && !names_this_machine(host.name, host.user, own_names)) {
      others.push_back({.name = host.name, .user = host.user});
    }
  }
  if (others.empty()) return {.launch_with = allocation.launch_with, .launch_with_of = allocation.launch_with_of};
  return {.note = "found " + allocation.source + ", but " + shortened(as_option(others)) +
                  (others.size() == 1 ? " is" : " are") +
                  " not in it by that name, so distrun reaches all hosts by ssh"};
}

std::string found_text(const Allocation& allocation) {
  std::size_t slots = 0;
  bool all_known = true;
  bool by_option = true;  // -H cannot say "1 without GPUs"
  for (const HostSlots& host : allocation.hosts) {
    slots += static_cast<std::size_t>(host.slots.value_or(0));
    all_known = all_known && host.slots;
    by_option = by_option && (host.slots || host.without_gpus == 0);
  }
  const std::string list = shortened(as_option(allocation.hosts));
  std::string out = "found " + allocation.source + ": " + counted(allocation.hosts.size(), "host");
  if (all_known) out += " and " + counted(slots, "slot");
  if (!allocation.slots_are.empty()) out += " (" + allocation.slots_are + ")";
  return out + (by_option ? ", as -H " + list + " would give" : ": " + list) + "; --no-detect turns this off";
}

}  // namespace distrun::launcher
