#include "launcher/plan/schedulers/mpi.h"

#include <algorithm>
#include <array>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/text.h"
#include "launcher/plan/schedulers/slurm.h"

namespace distrun::launcher {
namespace {

// In addition to the variables that name the rank: those that tell Open MPI's parts that mpirun started them, those of
// Slurm's plugins for the tasks of a step, and those of MPICH about the rank's host.
constexpr std::array<std::string_view, 4> kPrefixes = {"ORTE_", "OPAL_", "SLURM_", "MPICH_INTERFACE_"};

std::vector<int> ranks_of_hosts(const Assignment& assignment) {
  std::vector<int> out(assignment.hosts.size());
  for (const Place& place : assignment.places) ++out[static_cast<std::size_t>(place.host)];
  return out;
}

// "h1:2,h2:2". On a single host the count includes spare slots, for MPI_Comm_spawn. With several hosts, MPI would fill
// spare slots in another order than distrun.
std::string hosts_with_counts(const Assignment& assignment) {
  std::string out;
  std::vector<int> counts = ranks_of_hosts(assignment);
  if (counts.size() == 1) counts.front() = std::max(counts.front(), assignment.slots.front());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    out += (i == 0 ? "" : ",") + assignment.hosts[i] + ":" + std::to_string(counts[i]);
  }
  return out;
}

// Fills host after host, as distrun does. Does not pin, because the agent does that.
std::vector<std::string> mpirun_argv(const Assignment& assignment) {
  return {"mpirun",
          "-np",
          std::to_string(assignment.places.size()),
          "--host",
          hosts_with_counts(assignment),
          "--map-by",
          "slot",
          "--bind-to",
          "none",
          "--stdin",
          "all"};
}

std::vector<std::string> hydra_argv(const Assignment& assignment) {
  return {"mpiexec.hydra", "-n",  std::to_string(assignment.places.size()), "-hosts", hosts_with_counts(assignment),
          "-bind-to",      "none"};
}

Result<std::vector<std::string>> srun_argv(const std::string& plugin, const Assignment& assignment,
                                           const Environment& environment) {
  const auto component = component_of(environment, assignment.hosts);
  if (!component.ok()) return component.status();
  if (!*component) {
    return Status(Errc::kInvalidArgument,
                  "--mpi=" + plugin +
                      " can use one component of a heterogeneous Slurm job, and these hosts are in several: " +
                      shortened(join(assignment.hosts, ",")) +
                      ". Use -H with the hosts of one (SLURM_JOB_NODELIST_HET_GROUP_0, ...). If your program does not "
                      "use MPI, leave out --mpi");
  }
  const std::vector<int> counts = ranks_of_hosts(assignment);
  if (std::any_of(counts.begin(), counts.end(), [&](int count) { return count != counts.front(); })) {
    return Status(
        Errc::kInvalidArgument,
        "--mpi=" + plugin + " needs the same number of ranks on each host: use --nproc-per-node, or --mpi=mpirun");
  }
  std::vector<std::string> out = {"srun",
                                  "--mpi=" + plugin,
                                  "--export=ALL",  // overrides SLURM_EXPORT_ENV, which sbatch may have set
                                  "--overlap",
                                  "--input=all",
                                  "--kill-on-bad-exit=0",
                                  "--cpu-bind=none",
                                  "--distribution=block",
                                  "--nodelist=" + join(assignment.hosts, ","),
                                  "--nodes=" + std::to_string(assignment.hosts.size()),
                                  "--ntasks=" + std::to_string(assignment.places.size()),
                                  "--ntasks-per-node=" + std::to_string(counts.front())};
  // Without this option srun takes the first one.
  if (**component > 0) out.push_back("--het-group=" + std::to_string(**component));
  if (assignment.oversubscribed) out.emplace_back("--overcommit");
  return out;
}

}  // namespace

std::optional<MpiStarter> parse_mpi_starter(std::string_view text) {
  if (text == "mpirun") return MpiStarter::kMpirun;
  if (text == "hydra") return MpiStarter::kHydra;
  if (text == "pmix") return MpiStarter::kSrunPmix;
  if (text == "pmi2") return MpiStarter::kSrunPmi2;
  return std::nullopt;
}

Result<std::vector<std::string>> mpi_argv(MpiStarter starter, const Assignment& assignment,
                                          const Environment& environment, const std::vector<std::string>& wrapper,
                                          bool as_root) {
  for (std::size_t i = 0; i < assignment.hosts.size(); ++i) {
    const std::string& user = assignment.users[i];
    if (user.empty() && assignment.hosts[i].find(':') == std::string::npos) continue;
    return Status(Errc::kInvalidArgument, "--mpi: " + (user.empty() ? "" : user + "@") + assignment.hosts[i] +
                                              ": MPI's launcher needs plain host names. Write users and addresses "
                                              "into ~/.ssh/config");
  }
  using Argv = Result<std::vector<std::string>>;
  auto argv = starter == MpiStarter::kMpirun ? Argv(mpirun_argv(assignment))
              : starter == MpiStarter::kHydra
                  ? Argv(hydra_argv(assignment))
                  : srun_argv(starter == MpiStarter::kSrunPmix ? "pmix" : "pmi2", assignment, environment);
  if (argv.ok() && as_root && starter == MpiStarter::kMpirun) argv->emplace_back("--allow-run-as-root");
  if (argv.ok()) argv->insert(argv->end(), wrapper.begin(), wrapper.end());
  return argv;
}

bool shares_key_by_pmi(MpiStarter starter) { return starter == MpiStarter::kHydra; }

Assignment one_agent_per_rank(const Assignment& assignment) {
  Assignment out = assignment;
  out.hosts.clear();
  out.users.clear();
  out.slots.assign(assignment.places.size(), 1);
  for (Place& place : out.places) {
    const auto host = static_cast<std::size_t>(place.host);
    out.hosts.push_back(assignment.hosts[host]);
    out.users.push_back(assignment.users[host]);
    place.host = place.rank;
  }
  return out;
}

Environment environment_of_starter(MpiStarter starter, const Environment& environment) {
  const bool by_ssh = starter == MpiStarter::kMpirun || starter == MpiStarter::kHydra;
  Environment out = environment;
  std::erase_if(out, [by_ssh](const auto& variable) {
    const std::string& name = variable.first;
    const bool ticket_or_agent = name == "KRB5CCNAME" || (by_ssh && name == "SSH_AUTH_SOCK");
    return names_one_host(name) && !names_folder(name) && !ticket_or_agent;
  });
  return out;
}

bool needed_by_mpi(std::string_view name) {
  if (name.starts_with("TORCHELASTIC_")) return false;  // torchrun starts no MPI programs
  return names_outer_rank(name) || std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                               [name](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace distrun::launcher
