#include "launcher/plan/schedulers/slurm.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/hostlist.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

// A step of one task that runs beside the other steps of the job. It may use all that the job has on the node, because
// the agent does the binding. --mpi=none keeps Slurm from treating the agent as an MPI task. ssh is not used, since
// clusters often forbid it.
constexpr const char* kSrun =
    "--overlap --nodes=1 --ntasks=1 --nodelist={host} --cpu-bind=none --mpi=none --unbuffered "
    "/bin/sh -c {agent}";

std::string srun_command(const std::string& options = "") { return "srun " + options + kSrun; }

using Counts = std::vector<int>;

bool is_set(const Environment& environment, const std::string& name) { return !value_of(environment, name).empty(); }

// "2" or "2(x3)".
std::optional<Fault> read_count(std::string_view text, Counts& counts) {
  const std::size_t open = std::min(text.find("(x"), text.size());
  const auto count = parse_number(text.substr(0, open), 1, kMaxRanks);
  std::optional<int> times = 1;
  if (open < text.size()) {
    const bool closed = text.ends_with(')');
    times = closed ? parse_number(text.substr(open + 2, text.size() - open - 3), 1, kMaxHosts) : std::nullopt;
  }
  if (!count || !times)
    return Fault{0, in_quotes(text) + " is not a list of numbers, one for each host, as in 2(x3),1"};
  if (counts.size() + static_cast<std::size_t>(*times) > kMaxHosts)
    return Fault{0, "these numbers are for too many hosts"};
  counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  return std::nullopt;
}

// Inside a step (srun) some variables describe the step instead of the job.
bool in_step(const Environment& environment) { return is_set(environment, "SLURM_STEP_NODELIST"); }

// True in the batch script, and in a shell on one of the job's hosts (salloc's own step, srun --pty). Commands typed
// there are meant for the whole job.
bool speaks_for_job(const Environment& environment) {
  constexpr std::string_view kInteractive = "4294967290";
  constexpr std::string_view kBatch = "4294967291";
  const std::string step = value_of(environment, "SLURM_STEP_ID");
  return step == kInteractive || step == kBatch || is_set(environment, "SLURM_PTY_PORT");
}

// One component of a job. Only heterogeneous jobs have several. The variables of a single component have no suffix.
class Component {
 public:
  Component(const Environment& environment, std::string suffix)
      : environment_(environment), suffix_(std::move(suffix)) {}

  // The hosts of the job, or those of a step that runs this command on a part of them (`srun -N1 -n1 distrun ... &` for
  // each part).
  Result<std::vector<HostSlots>> hosts() {
    auto names = names_in("SLURM_JOB_NODELIST" + suffix_);
    if (!names.ok()) return names.status();
    if (suffix_.empty() && in_step(environment_) && !speaks_for_job(environment_)) {
      auto own = names_in("SLURM_STEP_NODELIST");
      if (!own.ok()) return own.status();
      if (own->size() < names->size()) {
        job_hosts_ = *std::move(names);
        names = std::move(own);
      }
    }
    auto slots = slots_of(names->size());
    if (!slots.ok()) return slots.status();
    std::vector<HostSlots> out;
    for (std::size_t i = 0; i < names->size(); ++i) {
      out.push_back({.name = std::move((*names)[i])});
      if (slots->empty()) continue;
      if (gpus_unknown_) {
        out.back().without_gpus = (*slots)[i];
      } else {
        out.back().slots = (*slots)[i];
        out.back().counted = !tasks_count_;
      }
    }
    if (gpus_unknown_) slots_are_ = "one per GPU, or " + slots_are_ + " without GPUs";
    return out;
  }

  [[nodiscard]] const std::string& slots_are() const { return slots_are_; }
  // All hosts of the job, if hosts() returns only those of a step.
  [[nodiscard]] const std::vector<std::string>& job_hosts() const { return job_hosts_; }

 private:
  [[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& variable) const {
    return parse_hostlist(value_of(environment_, variable), variable);
  }
  [[nodiscard]] bool part_of_job() const { return !job_hosts_.empty(); }
  // Variables without a suffix describe the batch host, which is in the first component.
  [[nodiscard]] bool has_batch_host() const { return suffix_.empty() || suffix_ == "_HET_GROUP_0"; }

  // A variable with one number per host. Returns nothing if it is not set, or if it is that of a step on some of the
  // hosts.
  Result<std::optional<Counts>> counts(const std::string& name, std::size_t hosts) const {
    const std::string text = value_of(environment_, name + suffix_);
    if (text.empty()) return std::optional<Counts>();
    auto counts = parse_slurm_counts(text, name + suffix_);
    if (!counts.ok()) return counts.status();
    if (counts->size() == hosts) return std::optional<Counts>(*std::move(counts));
    if (in_step(environment_)) return std::optional<Counts>();
    return Status(Errc::kInvalidArgument, name + suffix_ + "=" + text + " is for " + counted(counts->size(), "host") +
                                              ", but SLURM_JOB_NODELIST" + suffix_ + " names " + std::to_string(hosts));
  }

  Result<Counts> slots_of(std::size_t hosts) {
    auto tasks = counts("SLURM_TASKS_PER_NODE", hosts);
    if (!tasks.ok()) return tasks.status();
    const auto per_node = parse_number(value_of(environment_, "SLURM_NTASKS_PER_NODE" + suffix_), 1, kMaxRanks);
    if (part_of_job() && !several(*tasks)) tasks->reset();  // these tasks are this command itself
    if (!*tasks && per_node) *tasks = Counts(hosts, *per_node);
    const bool asked = per_node || is_set(environment_, "SLURM_NTASKS" + suffix_);
    tasks_count_ = asked && several(*tasks);
    const int gpus = tasks_count_ ? 0 : gpus_per_host(hosts);
    gpus_unknown_ = !tasks_count_ && gpus == 0 && !has_batch_host();
    if (gpus > 0) {
      slots_are_ = "one per GPU";
      return Counts(hosts, gpus);
    }
    if (*tasks) {
      slots_are_ = "one per task";
      return **std::move(tasks);
    }
    return part_of_job() ? Counts() : slots_by_cpus(hosts);
  }

  // One task per host is the default, and users ask for it to start a launcher. It does not say how many ranks they
  // want.
  static bool several(const std::optional<Counts>& tasks) {
    return tasks && std::any_of(tasks->begin(), tasks->end(), [](int count) { return count > 1; });
  }

  Result<Counts> slots_by_cpus(std::size_t hosts) {
    auto cpus = counts("SLURM_JOB_CPUS_PER_NODE", hosts);
    if (!cpus.ok()) return cpus.status();
    if (!*cpus) return Counts();
    const int per_task =
        parse_number(value_of(environment_, "SLURM_CPUS_PER_TASK" + suffix_), 1, kMaxRanks).value_or(1);
    slots_are_ = per_task == 1 ? "one per CPU" : "one per " + std::to_string(per_task) + " CPUs";
    for (int& count : **cpus) count = std::max(1, count / per_task);
    return **std::move(cpus);
  }

  // Returns 0 if there are none, or if Slurm does not show that every host has the same number.
  [[nodiscard]] int gpus_per_host(std::size_t hosts) const {
    const std::string on_node = has_batch_host() ? value_of(environment_, "SLURM_GPUS_ON_NODE") : "";
    const int here = parse_number(on_node, 1, kMaxRanks).value_or(0);
    if (part_of_job() && here > 0) return here;  // the step's own; the other variables may describe the job
    if (const std::string text = value_of(environment_, "SLURM_GPUS_PER_NODE" + suffix_); !text.empty()) {
      return sum_of_types(text);
    }
    const std::string total = value_of(environment_, "SLURM_GPUS" + suffix_);
    if (total.empty()) return here;
    return static_cast<std::size_t>(sum_of_types(total)) == static_cast<std::size_t>(here) * hosts ? here : 0;
  }

  // "8", "a100:8", "a100:4,v100:4"; 0 for anything else.
  static int sum_of_types(std::string_view text) {
    int sum = 0;
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find(','), text.size());
      const std::string_view part = text.substr(0, comma);
      const auto number = parse_number(part.substr(part.rfind(':') + 1), 0, kMaxRanks);
      if (!number || sum > kMaxRanks) return 0;
      sum += *number;
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return sum;
  }

  const Environment& environment_;
  std::string suffix_;
  std::string slots_are_;
  bool tasks_count_ = false;   // the user asked for several tasks on a host
  bool gpus_unknown_ = false;  // Slurm does not tell (--gres), so the hosts are asked
  std::vector<std::string> job_hosts_;
};

// Each component may have been requested in another way.
void add_slots_are(const Component& component, Allocation& out) {
  const std::string& text = component.slots_are();
  if (!text.empty() && out.slots_are != text) out.slots_are += (out.slots_are.empty() ? "" : "; ") + text;
}

// Describes a step that has only some hosts of the job.
void describe_step(const Environment& environment, const std::vector<std::string>& job_hosts, Allocation& out) {
  const std::string all = counted(job_hosts.size(), "host");
  out.source = "step " + value_of(environment, "SLURM_STEP_ID") + " of " + out.source + " (" +
               std::to_string(out.hosts.size()) + " of its " + all + ")";
  out.more_slots = "start distrun without srun for all " + all + " of the job";
  out.beside = job_hosts;
}

// True for variables of Slurm that name the job or say how to reach the cluster. All others may be options of srun: the
// step's share of the job, its output, its folder, and its variables (with sbatch --export=NONE not even HOME).
bool names_job_or_cluster(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "SLURM_JOB_ID",   "SLURM_JOBID",        "SLURM_JOB_NODELIST",   "SLURM_NODELIST",     "SLURM_JOB_NUM_NODES",
      "SLURM_HET_SIZE", "SLURM_CONF",         "SLURM_CONF_SERVER",    "SLURM_CLUSTER_NAME", "SLURM_JWT",
      "SLURM_STEPMGR",  "SLURM_NODE_ALIASES", "SLURM_WORKING_CLUSTER"};
  name = name.substr(0, name.find("_HET_GROUP_"));
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool may_be_option_of_srun(std::string_view name) {
  return name.starts_with("SRUN_") || (name.starts_with("SLURM") && !names_job_or_cluster(name));
}

std::vector<std::string> suffixes(const Environment& environment) {
  const auto components = parse_number(value_of(environment, "SLURM_HET_SIZE"), 1, 1000);
  if (!components || !is_set(environment, "SLURM_JOB_NODELIST_HET_GROUP_0")) return {""};
  std::vector<std::string> out;
  for (int i = 0; i < *components; ++i) out.push_back("_HET_GROUP_" + std::to_string(i));
  return out;
}

}  // namespace

Result<std::vector<int>> parse_slurm_counts(const std::string& text, const std::string& where) {
  Counts out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    if (auto fault = read_count(std::string_view(text).substr(start, comma - start), out)) {
      fault->column += start;
      return Status(Errc::kInvalidArgument, caret_error(where, text, *fault));
    }
    start = comma + 1;
  }
  return out;
}

bool in_slurm_job(const Environment& environment) { return is_set(environment, "SLURM_JOB_ID"); }

Result<std::optional<Allocation>> slurm_allocation(const Environment& environment) {
  const std::vector<std::string> components = suffixes(environment);
  if (!is_set(environment, "SLURM_JOB_NODELIST" + components.front())) return std::optional<Allocation>();
  Allocation out{.source = "Slurm job " + value_of(environment, "SLURM_JOB_ID"),
                 .own_name = value_of(environment, "SLURMD_NODENAME"),
                 .more_slots = "ask Slurm for more (--nodes, --ntasks-per-node, --gpus-per-node)",
                 .launch_with = srun_command(),
                 .launch_with_of = {},
                 .beside = {}};
  for (std::size_t i = 0; i < components.size(); ++i) {
    Component component(environment, components[i]);
    auto hosts = component.hosts();
    if (!hosts.ok()) return hosts.status();
    // Without --het-group, srun starts a step in the first component.
    for (const HostSlots& host : *hosts) {
      if (i > 0) out.launch_with_of.emplace(host.name, srun_command("--het-group=" + std::to_string(i) + " "));
    }
    out.hosts.insert(out.hosts.end(), hosts->begin(), hosts->end());
    if (!component.job_hosts().empty()) describe_step(environment, component.job_hosts(), out);
    add_slots_are(component, out);
  }
  out.hosts = merge_same_names(std::move(out.hosts));
  return std::optional<Allocation>(std::move(out));
}

Result<std::optional<int>> component_of(const Environment& environment, const std::vector<std::string>& hosts) {
  const std::vector<std::string> components = suffixes(environment);
  if (components.size() == 1) return std::optional<int>(0);
  for (std::size_t i = 0; i < components.size(); ++i) {
    const std::string variable = "SLURM_JOB_NODELIST" + components[i];
    const auto names = parse_hostlist(value_of(environment, variable), variable);
    if (!names.ok()) return names.status();
    const std::set<std::string> own(names->begin(), names->end());
    const bool all = std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return own.contains(host); });
    if (all) return std::optional<int>(static_cast<int>(i));
  }
  return std::optional<int>();
}

Environment environment_of_steps(const Environment& environment) {
  Environment out = environment;
  // srun passes the rest to the other host, whose agent would use these as values of that host. KRB5CCNAME stays, since
  // srun plug-ins of some sites read the ticket cache.
  std::erase_if(out, [](const auto& variable) {
    const std::string& name = variable.first;
    return may_be_option_of_srun(name) || (names_one_host(name) && name != "KRB5CCNAME");
  });
  return out;
}

}  // namespace distrun::launcher
