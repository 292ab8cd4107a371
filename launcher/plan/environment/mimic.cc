// The variables of other launchers (--mimic).
#include <map>

#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/hostlist.h"
#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

// Other launchers use numbers as job ids.
std::uint32_t number_of(const std::string& job_id) {
  std::uint32_t hash = 2166136261U;
  for (const char c : job_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash % 1'000'000 + 1;
}

// "2(x3),1": the tasks of each host, in Slurm's notation.
std::string tasks_per_host(const JobFacts& facts) {
  std::map<int, int> tasks;
  for (const Place& place : facts.places) ++tasks[place.host];
  std::vector<std::string> out;
  for (auto it = tasks.begin(); it != tasks.end();) {
    auto end = it;
    int hosts = 0;
    for (; end != tasks.end() && end->second == it->second; ++end) ++hosts;
    out.push_back(std::to_string(it->second) + (hosts > 1 ? "(x" + std::to_string(hosts) + ")" : ""));
    it = end;
  }
  return join(out, ",");
}

// The address at which mpirun's own process would listen.
std::string openmpi_uri(const JobFacts& facts) {
  const std::string& address = facts.address[static_cast<std::size_t>(facts.places.front().host)];
  const bool v6 = address.find(':') != std::string::npos;
  return std::to_string(number_of(facts.job_id) % 4096 * 4096) + ".0;" +
         (v6 ? "tcp6://[" + address + "]" : "tcp://" + address) + ":" + std::to_string(facts.jax_port);
}

}  // namespace

JobFacts follows(JobFacts facts) {
  int machines = 0;
  for (const Place& place : facts.places) {
    // The ranks of a machine are consecutive. Place::host does not tell machines, since with --mpi each rank has its
    // own agent.
    if (place.local_rank == 0) ++machines;
    facts.node.push_back(machines - 1);
  }
  facts.slurm_hosts = join(compress_hostlist(facts.hosts), ",");
  facts.slurm_tasks = tasks_per_host(facts);
  return facts;
}

void add_mimicked(const JobFacts& facts, Mimic mimic, const Environment& base, int rank, std::vector<Variable>& out) {
  if (mimic == Mimic::kNone) return;
  const Place& place = facts.places[static_cast<std::size_t>(rank)];
  const std::string size = std::to_string(facts.places.size());
  const std::string hosts = std::to_string(facts.hosts.size());
  const char* why = mimic == Mimic::kOpenMpi ? "--mimic openmpi" : "--mimic slurm";
  const auto add = [&](const char* name, std::string value) { out.push_back({name, std::move(value), why}); };
  if (mimic == Mimic::kOpenMpi) {
    add("OMPI_COMM_WORLD_RANK", std::to_string(rank));
    add("OMPI_COMM_WORLD_SIZE", size);
    add("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(place.local_rank));
    add("OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(place.local_size));
    add("OMPI_COMM_WORLD_NODE_RANK", std::to_string(place.local_rank));
    add("OMPI_MCA_orte_hnp_uri", openmpi_uri(facts));
    return;
  }
  const std::string job = value_of(base, "SLURM_JOB_ID");
  add("SLURM_JOB_ID", job.empty() ? std::to_string(number_of(facts.job_id)) : job);
  add("SLURM_PROCID", std::to_string(rank));
  add("SLURM_LOCALID", std::to_string(place.local_rank));
  add("SLURM_NODEID", std::to_string(place.host));
  // Sets the variables of the job as well as those of the step, since programs read either. A real job may also have
  // hosts without ranks.
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) add(name, facts.slurm_hosts);
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"}) add(name, hosts);
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) add(name, size);
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) add(name, facts.slurm_tasks);
  // This variable holds a single number, so set it only if every host has the same number of tasks.
  if (facts.slurm_tasks.find(',') == std::string::npos) {
    add("SLURM_NTASKS_PER_NODE", std::to_string(place.local_size));
  }
}

}  // namespace distrun::launcher
