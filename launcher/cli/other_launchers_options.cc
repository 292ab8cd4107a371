#include "launcher/cli/other_launchers_options.h"

#include <algorithm>
#include <array>
#include <utility>

namespace distrun::launcher {
namespace {

constexpr std::string_view kOnce =
    "leave it out; for several hosts type distrun once and name all hosts with -H or --hostfile";
constexpr std::string_view kPerHost = "use --nproc-per-node";
constexpr std::string_view kFixed = "the number of ranks is fixed: use -np";
constexpr std::string_view kMeet = "leave it out: ranks find each other by what distrun tells them";
constexpr std::string_view kPort =
    "leave it out: distrun finds a free port, or takes the one that -x MASTER_PORT=29500 names";
constexpr std::string_view kTagged = "leave it out: lines are tagged (--tag none, rank or host)";
constexpr std::string_view kInherit = "leave it out: ranks have this shell's variables (--env)";
constexpr std::string_view kNoTuning = "leave it out: distrun does not tune itself";
constexpr std::string_view kNoCycles = "leave it out: work wakes the engine, there are no cycles";
constexpr std::string_view kNoController =
    "leave it out: it chooses what Horovod's ranks agree through, and distrun's need neither MPI nor Gloo";
constexpr std::string_view kHierarchical =
    "leave it out: distrun chooses by the hosts that there are (--backend hierarchical takes no other)";
constexpr std::string_view kMca =
    "leave it out: it is for Open MPI alone (plm_rsh_args \"-p PORT\" is --ssh-port PORT, btl_tcp_if_include eth0 is "
    "--network eth0; with --mpi set OMPI_MCA_name=value)";
constexpr std::string_view kMapBy =
    "leave it out: ranks fill host after host; for N on each host use --nproc-per-node N";
constexpr std::string_view kFolder = "leave it out: ranks run in the folder that distrun is typed in; cd there first";
constexpr std::string_view kFiles = "leave it out: --output-dir writes what each rank says to files";
constexpr std::string_view kForward = "use -x NAME=VALUE";
constexpr std::string_view kExplain = "use --explain, which starts nothing";

constexpr OtherLaunchersOption kOptions[] = {
    // several launchers
    {"insecure", 0, "every connection is authenticated"},
    {"launcher", 1, "hosts are reached by ssh, or by --launch-with"},
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
    {"host-discovery-script", 1, "the hosts are fixed: use -H or --hostfile"},
    {"reset-limit", 1, "leave it out: a job whose rank fails ends; start it again from a checkpoint"},
    {"blacklist-cooldown-range", 2, "leave it out: the hosts are fixed"},
    {"elastic-timeout", 1, "leave it out: the number of ranks is fixed"},
    {"gloo", 0, kNoController},
    {"jsrun", 0, kNoController},
    {"tcp", 0, "leave it out: it is for Horovod's MPI"},
    {"mpi-args", 1, "leave it out: no mpirun is started (with --mpi one is, and takes OMPI_MCA_name=value)"},
    {"mpi-threads-disable", 0, "leave it out: it is for Horovod's MPI"},
    {"no-mpi-threads-disable", 0, "leave it out: it is for Horovod's MPI"},
    {"binding-args", 1, "use --bind-to"},
    {"thread-affinity", 1, "use --bind-to core"},
    {"num-nccl-streams", 1, "leave it out: there is nothing to set"},
    {"gloo-timeout-seconds", 1, "leave it out (--start-timeout is how long init waits for all ranks)"},
    {"check-build", 0, "type distrun check --build"},
    {"cb", 0, "type distrun check --build"},
    {"config-file", 1, "use --config, whose lines are name = value"},
    {"disable-cache", 0, "leave it out: hosts are looked at in every job"},
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
    {"stall-check", 0, "leave it out: it is on (--stall-warning-time)"},
    {"stall-check-warning-time-seconds", 1, "use --stall-warning-time"},
    {"stall-check-shutdown-time-seconds", 1, "use --stall-shutdown-time"},
    {"log-hide-timestamp", 0, "leave it out (--timestamp puts one before each line)"},
    {"no-log-hide-timestamp", 0, "use --timestamp"},
    {"log-without-timestamp", 0, "leave it out (--timestamp puts one before each line)"},
    {"log-with-timestamp", 0, "use --timestamp"},
    {"prefix-output-with-timestamp", 0, "use --timestamp"},
    {"prefix-timestamp", 0, "use --timestamp"},
    // mpirun, mpiexec
    {"mca", 2, kMca},
    {"gmca", 2, kMca},
    {"map-by", 1, kMapBy},
    {"rank-by", 1, kMapBy},
    {"allow-run-as-root", 0, "leave it out: root may start jobs"},
    {"tag-output", 0, kTagged},
    {"prepend-rank", 0, kTagged},
    {"l", 0, kTagged},
    {"timestamp-output", 0, "use --timestamp"},
    {"wdir", 1, kFolder},
    {"wd", 1, kFolder},
    {"display-map", 0, kExplain},
    {"display-allocation", 0, kExplain},
    {"prefix", 1, "leave it out: a host needs distrun at the same path as here, or on PATH"},
    {"use-hwthread-cpus", 0, "leave it out; --oversubscribe allows more ranks than slots"},
    {"f", 1, "use --hostfile"},
    {"N", 1, "use --nproc-per-node for ranks on each host (mpirun), -H for hosts (srun)"},
    {"perhost", 1, kPerHost},
    {"genv", 2, kForward},
    {"-env", 2, kForward},  // --env is an option of distrun
    {"genvlist", 1, "use -x NAME for each"},
    {"envlist", 1, "use -x NAME for each"},
    {"genvall", 0, kInherit},
    {"envall", 0, kInherit},
    {"iface", 1, "use --network"},
    {"bootstrap", 1, "leave it out: hosts are reached by srun in a Slurm job, else by ssh, or by --launch-with"},
    {"merge", 0, "use --output-dir, which writes merged.log"},
    {"propagate", 0, "ranks have this shell's limit of open files, and on other hosts all other limits of those hosts"},
    // torchrun, accelerate, deepspeed
    {"standalone", 0, "leave it out: a job without -H, --hostfile or an allocation is on this machine"},
    {"nnodes", 1, kOnce},
    {"node-rank", 1, kOnce},
    {"rdzv-endpoint", 1, kOnce},
    {"num-machines", 1, kOnce},
    {"num-nodes", 1, kOnce},
    {"machine-rank", 1, kOnce},
    {"master-addr", 1, "leave it out: it is rank 0's host"},
    {"main-process-ip", 1, "leave it out: it is rank 0's host"},
    {"master-port", 1, kPort},
    {"main-process-port", 1, kPort},
    {"rdzv-backend", 1, kMeet},
    {"rdzv-id", 1, kMeet},
    {"rdzv-conf", 1, kMeet},
    {"max-restarts", 1, "leave it out: a job whose rank fails ends; start it again from a checkpoint"},
    {"monitor-interval", 1, "leave it out: the end of a rank is noticed at once"},
    {"start-method", 1, "leave it out: ranks are programs of their own"},
    {"tee", 1, "leave it out: every rank's lines are shown (--output-dir writes them to files too)"},
    {"t", 1, "leave it out (torchrun's --tee), or use --timeout SECONDS (srun)"},
    {"redirects", 1, "use --output-dir"},
    {"r", 1, "use --output-dir"},
    {"duplicate-stdout-filters", 1, kFiles},
    {"duplicate-stderr-filters", 1, kFiles},
    {"logs-specs", 1, kFiles},
    {"event-log-handler", 1, "leave it out: there is nothing to set"},
    {"module", 0, "use -m"},
    {"run-path", 0, "leave it out: ranks are programs of their own"},
    {"role", 1, "leave it out: all ranks have one role"},
    {"local-addr", 1, "leave it out: hosts try each other's addresses (--network limits which)"},
    {"numa-binding", 1, "use --bind-to numa"},
    {"virtual-local-rank", 0, "use --gpu-visibility one, and device 0 in the script"},
    {"signals-to-handle", 1, "leave it out: ranks get the signals that end a job, and USR1 and USR2 too"},
    {"log-dir", 1, "use --output-dir"},
    {"local-ranks-filter", 1,
     "leave it out: --fold shows what many ranks write once, and --output-dir has each rank's own"},
    {"no-python", 0, "leave it out: distrun starts any program"},
    {"use-env", 0, "leave it out: LOCAL_RANK is always set"},
    {"num-processes", 1, "use -np"},
    {"num-gpus", 1, "use -np"},
    {"multi-gpu", 0, "use -np"},
    // srun
    {"ntasks", 1, "use -np"},
    {"ntasks-per-node", 1, kPerHost},
    {"gpus-per-task", 1, "use --gpus-per-rank"},
};

// Spellings that users know from mpirun and its relatives. The command-line library would read a word with one dash as
// single letters.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kSpellings = {{
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
  return word;
}

}  // namespace distrun::launcher
