#include "launcher/cli/help/other_launchers_options.h"

#include <algorithm>
#include <array>
#include <utility>

namespace distrun::launcher {
namespace {

constexpr std::string_view kOnce = "leave it out. Type distrun once, and name all hosts with -H or --hostfile";
constexpr std::string_view kPerHost = "use --nproc-per-node";
constexpr std::string_view kFixed = "use -np. The number of ranks does not change while a job runs";
constexpr std::string_view kMeet = "leave it out. distrun tells the ranks how to find each other";
constexpr std::string_view kPort = "leave it out. distrun finds a free port. To choose one, use -x MASTER_PORT=29500";
constexpr std::string_view kTagged = "leave it out. Each line has the number of its rank (--tag changes that)";
constexpr std::string_view kInherit = "leave it out. Ranks get the variables of this shell (--env changes that)";
constexpr std::string_view kNoTuning = "leave it out. distrun has no automatic tuning";
constexpr std::string_view kNoCycles = "leave it out. distrun starts each operation at once; it has no cycles";
constexpr std::string_view kNoController =
    "leave it out. distrun connects its ranks itself, without MPI and without Gloo";
constexpr std::string_view kHierarchical =
    "leave it out. distrun chooses the algorithm by the hosts of the job. To force the hierarchical one, use --backend "
    "hierarchical";
constexpr std::string_view kMca =
    "leave it out. Use --ssh-port PORT for plm_rsh_args \"-p PORT\", and --network eth0 for btl_tcp_if_include eth0. "
    "With --mpi, set other parameters by variables: OMPI_MCA_name=value";
constexpr std::string_view kMapBy =
    "leave it out. Ranks fill one host after the other; for N ranks on each host use --nproc-per-node N";
constexpr std::string_view kFolder = "leave it out. Ranks run in the folder where you type distrun: cd there first";
constexpr std::string_view kFiles = "leave it out. --output-dir writes the output of each rank to files";
constexpr std::string_view kForward = "use -x NAME=VALUE";
constexpr std::string_view kExplain = "use --explain, which shows the plan and starts nothing";
constexpr std::string_view kHorovodMpi = "leave it out. It is an option for Horovod's MPI, which distrun does not use";
constexpr std::string_view kNotNeeded = "leave it out. distrun has no such setting, and needs none";
constexpr std::string_view kNoRestart =
    "leave it out. If a rank fails, the job ends; start it again from its last checkpoint";
constexpr std::string_view kNodes =
    "leave it out. Name the hosts with -H or --hostfile. In an allocation, all are used";
constexpr std::string_view kOfAllocation =
    "leave it out. It belongs to the command that asks for the hosts (salloc, sbatch)";
constexpr std::string_view kPrograms = "leave it out. Each rank is a process that runs your program";

constexpr OtherLaunchersOption kOptions[] = {
    // several launchers
    {"insecure", 0, "leave it out. distrun always authenticates its connections"},
    {"launcher", 1, "leave it out. distrun reaches hosts by ssh; use --launch-with for another command"},
    {"rsh", 1, "use --launch-with"},
    {"rsh-agent", 1, "use --launch-with"},
    {"output-filename", 1, "use --output-dir"},
    // horovodrun
    {"p", 1, "use --ssh-port"},
    {"i", 1, "use --ssh-identity"},
    {"ssh-identity-file", 1, "use --ssh-identity"},
    {"min-np", 1, kFixed},
    {"max-np", 1, kFixed},
    {"min-num-proc", 1, kFixed},
    {"max-num-proc", 1, kFixed},
    {"slots-per-host", 1, kPerHost},
    {"host-discovery-script", 1, "use -H or --hostfile. The hosts do not change while a job runs"},
    {"reset-limit", 1, kNoRestart},
    {"blacklist-cooldown-range", 2, "leave it out. The hosts do not change while a job runs"},
    {"elastic-timeout", 1, "leave it out. The number of ranks does not change while a job runs"},
    {"gloo", 0, kNoController},
    {"jsrun", 0, kNoController},
    {"tcp", 0, kHorovodMpi},
    {"mpi-args", 1,
     "leave it out. distrun starts mpirun only with --mpi; set its parameters by variables: OMPI_MCA_name=value"},
    {"mpi-threads-disable", 0, kHorovodMpi},
    {"no-mpi-threads-disable", 0, kHorovodMpi},
    {"binding-args", 1, "use --bind-to"},
    {"thread-affinity", 1, "use --bind-to core"},
    {"num-nccl-streams", 1, kNotNeeded},
    {"gloo-timeout-seconds", 1, "use --start-timeout, which is how long init() waits for all ranks"},
    {"check-build", 0, "type distrun check --build"},
    {"cb", 0, "type distrun check --build"},
    {"config-file", 1, "use --config with a file of lines: name = value"},
    {"disable-cache", 0, "leave it out. distrun checks the hosts in each job and keeps no cache"},
    {"network-interface", 1, "use --network"},
    {"network-interfaces", 1, "use --network"},
    {"nics", 1, "use --network"},
    {"timeline-filename", 1, "use --timeline"},
    {"timeline-mark-cycles", 0, kNoCycles},
    {"no-timeline-mark-cycles", 0, kNoCycles},
    {"cycle-time-ms", 1, kNoCycles},
    {"fusion-threshold-mb", 1, "use --fusion-threshold, as in --fusion-threshold 64MiB"},
    {"hierarchical-allreduce", 0, kHierarchical},
    {"no-hierarchical-allreduce", 0, kHierarchical},
    {"hierarchical-allgather", 0, kHierarchical},
    {"no-hierarchical-allgather", 0, kHierarchical},
    {"torus-allreduce", 0, kHierarchical},
    {"no-torus-allreduce", 0, kHierarchical},
    {"autotune", 0, kNoTuning},
    {"no-autotune", 0, kNoTuning},
    {"autotune-log-file", 1, kNoTuning},
    {"autotune-warmup-samples", 1, kNoTuning},
    {"autotune-steps-per-sample", 1, kNoTuning},
    {"autotune-bayes-opt-max-samples", 1, kNoTuning},
    {"autotune-gaussian-process-noise", 1, kNoTuning},
    {"no-stall-check", 0, "use --stall-warning-time 0"},
    {"stall-check", 0, "leave it out. The check is always on (--stall-warning-time sets its time)"},
    {"stall-check-warning-time-seconds", 1, "use --stall-warning-time"},
    {"stall-check-shutdown-time-seconds", 1, "use --stall-shutdown-time"},
    {"log-hide-timestamp", 0, "leave it out. Lines have no time unless you use --timestamp"},
    {"no-log-hide-timestamp", 0, "use --timestamp"},
    {"log-without-timestamp", 0, "leave it out. Lines have no time unless you use --timestamp"},
    {"log-with-timestamp", 0, "use --timestamp"},
    {"prefix-output-with-timestamp", 0, "use --timestamp"},
    {"prefix-timestamp", 0, "use --timestamp"},
    // mpirun, mpiexec
    {"mca", 2, kMca},
    {"gmca", 2, kMca},
    {"map-by", 1, kMapBy},
    {"rank-by", 1, kMapBy},
    {"tag-output", 0, kTagged},
    {"prepend-rank", 0, kTagged},
    {"l", 0, kTagged},
    {"timestamp-output", 0, "use --timestamp"},
    {"wdir", 1, kFolder},
    {"wd", 1, kFolder},
    {"display-map", 0, kExplain},
    {"display-allocation", 0, kExplain},
    {"prefix", 1, "leave it out. Each host needs distrun at the same path as here, or in PATH"},
    {"use-hwthread-cpus", 0, "leave it out. For more ranks than slots use --oversubscribe"},
    {"f", 1, "use --hostfile"},
    {"N", 1, "use --nproc-per-node for the ranks of each host (mpirun -N), or -H for the hosts (srun -N)"},
    {"perhost", 1, kPerHost},
    {"genv", 2, kForward},
    {"-env", 2, kForward},  // --env is an option of distrun
    {"genvlist", 1, "use -x NAME for each variable"},
    {"envlist", 1, "use -x NAME for each variable"},
    {"genvall", 0, kInherit},
    {"envall", 0, kInherit},
    {"iface", 1, "use --network"},
    {"bootstrap", 1,
     "leave it out. distrun reaches hosts by srun in a Slurm job, and by ssh elsewhere; use --launch-with for another "
     "command"},
    {"merge", 0, "use --output-dir, which writes the lines of all ranks to merged.log"},
    {"propagate", 0,
     "leave it out. Ranks get the limit of open files of this shell; on other hosts they have the other limits of that "
     "host"},
    // torchrun, accelerate, deepspeed
    {"standalone", 0, "leave it out. Without -H, --hostfile or an allocation a job runs on this machine"},
    {"nnodes", 1, kOnce},
    {"node-rank", 1, kOnce},
    {"rdzv-endpoint", 1, kOnce},
    {"num-machines", 1, kOnce},
    {"num-nodes", 1, kOnce},
    {"machine-rank", 1, kOnce},
    {"master-addr", 1, "leave it out. distrun uses the host of rank 0"},
    {"main-process-ip", 1, "leave it out. distrun uses the host of rank 0"},
    {"master-port", 1, kPort},
    {"main-process-port", 1, kPort},
    {"rdzv-backend", 1, kMeet},
    {"rdzv-id", 1, kMeet},
    {"rdzv-conf", 1, kMeet},
    {"max-restarts", 1, kNoRestart},
    {"monitor-interval", 1, "leave it out. distrun sees the end of a rank at once"},
    {"start-method", 1, kPrograms},
    {"tee", 1, "leave it out. distrun shows the lines of all ranks; --output-dir also writes them to files"},
    {"t", 1, "leave it out if you mean torchrun's --tee. Use --timeout SECONDS if you mean the time limit of srun"},
    {"redirects", 1, "use --output-dir"},
    {"r", 1, "use --output-dir"},
    {"duplicate-stdout-filters", 1, kFiles},
    {"duplicate-stderr-filters", 1, kFiles},
    {"logs-specs", 1, kFiles},
    {"event-log-handler", 1, kNotNeeded},
    {"module", 0, "use -m"},
    {"run-path", 0, kPrograms},
    {"role", 1, "leave it out. All ranks have the same role"},
    {"local-addr", 1, "leave it out. distrun tries all addresses of each host; use --network to limit them"},
    {"numa-binding", 1, "use --bind-to numa"},
    {"virtual-local-rank", 0, "use --gpu-visibility one; the script then uses device 0"},
    {"signals-to-handle", 1, "leave it out. distrun sends INT, TERM, HUP, USR1 and USR2 on to the ranks"},
    {"log-dir", 1, "use --output-dir"},
    {"local-ranks-filter", 1,
     "leave it out. --fold shows a line once that many ranks write; --output-dir writes a file for each rank"},
    {"no-python", 0, "leave it out. distrun starts programs of any kind"},
    {"use-env", 0, "leave it out. distrun always sets LOCAL_RANK"},
    {"num-processes", 1, "use -np"},
    {"num-gpus", 1, "use -np"},
    {"multi-gpu", 0, "use -np"},
    // srun
    {"ntasks", 1, "use -np"},
    {"nproc", 1, "use -np"},
    {"nprocs", 1, "use -np"},
    {"num-procs", 1, "use -np"},
    {"nodes", 1, kNodes},
    {"nodelist", 1, "use -H"},
    {"w", 1, "use -H"},
    {"exclude", 1, "leave that host out of -H or the hostfile, or write slots=0 for it"},
    {"partition", 1, kOfAllocation},
    {"account", 1, kOfAllocation},
    {"qos", 1, kOfAllocation},
    {"constraint", 1, kOfAllocation},
    {"reservation", 1, kOfAllocation},
    {"gres", 1, kOfAllocation},
    {"mem", 1, kOfAllocation},
    {"mem-per-cpu", 1, kOfAllocation},
    {"mem-per-gpu", 1, kOfAllocation},
    {"gpus", 1, kOfAllocation},
    {"gpus-per-node", 1, kOfAllocation},
    {"cpus-per-gpu", 1, kOfAllocation},
    {"exclusive", 0, kOfAllocation},
    {"job-name", 1, kOfAllocation},
    {"overlap", 0, kNotNeeded},
    {"cpus-per-task", 1, "leave it out. distrun divides the CPUs of a host among its ranks; --bind-to changes that"},
    {"c", 1, "use -np if you mean mpirun's -c. Leave it out if you mean srun's; --bind-to says which CPUs ranks get"},
    {"cpu-bind", 1, "use --bind-to"},
    {"label", 0, kTagged},
    {"chdir", 1, kFolder},
    {"export", 1, "use -x NAME=VALUE, or --env"},
    {"time", 1, "use --timeout SECONDS"},
    {"kill-on-bad-exit", 0, "leave it out. If a rank fails, distrun ends the job"},
    {"unbuffered", 0, "leave it out. distrun shows each line at once"},
    {"input", 1, "use --stdin for the rank that gets standard input"},
    {"output", 1, "use --output-dir"},
    {"error", 1, "use --output-dir"},
    {"ntasks-per-node", 1, kPerHost},
    {"gpus-per-task", 1, "use --gpus-per-rank"},
};

// Spellings that users know from mpirun and its relatives. The command-line library would read a word with one dash as
// single letters.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kSpellings = {{
    {"-np", "--num-proc"},
    {"-ppn", "--nproc-per-node"},
    {"-host", "--host"},
    {"-hosts", "--host"},
    {"-hostfile", "--hostfile"},
    {"-machinefile", "--hostfile"},
    {"-npernode", "--nproc-per-node"},
    {"--npernode", "--nproc-per-node"},
    {"-bind-to", "--bind-to"},
    {"-oversubscribe", "--oversubscribe"},
    {"-report-bindings", "--report-bindings"},
    {"-allow-run-as-root", "--allow-run-as-root"},
}};

}  // namespace

std::span<const OtherLaunchersOption> other_launchers_options() { return kOptions; }

const OtherLaunchersOption* find_other_launchers_option(std::string_view word) {
  std::string spelt(word.substr(0, word.find('=')));
  std::replace(spelt.begin(), spelt.end(), '_', '-');
  const std::string name = spelt.substr(std::min(spelt.find_first_not_of('-'), spelt.size()));
  const auto found = std::find_if(std::begin(kOptions), std::end(kOptions), [&](const OtherLaunchersOption& option) {
    return option.name == name || option.name == spelt;
  });
  return found == std::end(kOptions) ? nullptr : found;
}

std::string in_our_spelling(const std::string& word) {
  for (const auto& [theirs, ours] : kSpellings) {
    if (!word.starts_with(theirs)) continue;
    const std::string rest = word.substr(theirs.size());
    if (rest.empty()) return std::string(ours);
    if (rest.front() == '=') return std::string(ours) + rest;
    const bool number = theirs == "-np" || theirs == "-ppn";
    if (number && rest.front() >= '0' && rest.front() <= '9') return std::string(ours) + "=" + rest;
  }
  std::string out = word;
  const std::size_t end = std::min(out.find('='), out.size());
  if (out.starts_with("--")) std::replace(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return out;
}

}  // namespace distrun::launcher
