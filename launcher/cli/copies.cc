#include "launcher/cli/copies.h"

#include "launcher/cli/host_source.h"
#include "launcher/plan/environment/environment.h"
#include "launcher/plan/hosts/text.h"
#include "runtime/net/launchers/other_launcher.h"
#include "runtime/net/launchers/platform_tasks.h"

namespace distrun::launcher {
namespace {

constexpr const char* kOnEachHost =
    "run `distrun agent --connect HOST:PORT --key-file FILE` on each host, and on one of them also "
    "`distrun --agents N --listen PORT --key-file FILE program`";

// The number of hosts or processes in a torchrun variable. A range such as 1:4 means its maximum. Returns 1 if the
// variable is absent or is not a number.
int several(const Environment& environment, const char* name) {
  const std::string text = value_of(environment, name);
  return parse_number(text.substr(text.rfind(':') + 1), 1, kMaxRanks).value_or(1);
}

// Only warns: one of the tasks may be meant to start the whole job.
AmongCopies as_for_platform(const Options& options, const Environment& environment) {
  const auto tasks = net::platform_tasks(environment);
  if (!tasks) return {};
  std::string_view lost;
  if (tasks->variable == "JAX_NUM_PROCESSES") lost = " and will be overwritten";
  if (tasks->variable == "TF_CONFIG" && options.frameworks.tf_config)
    lost = " and may be overwritten";  // not in a job of one rank
  return {.text = tasks->variable + " names " + std::to_string(tasks->count) + " tasks" + std::string(lost) +
                  ". If you run this command only once, `unset " + tasks->variable +
                  "` or add --no-detect. If it runs in each task, each starts the whole job: " + kOnEachHost};
}

// The variables that Kubeflow's operator and similar ones set in every pod. The pod is expected to run torchrun, or a
// script that reads RANK. RANK and WORLD_SIZE may also come from elsewhere in the shell, so they only cause a warning.
AmongCopies as_for_torchrun(const Options& options, const Environment& environment) {
  const bool named = options.hosts.named() || options.hosts.agents > 0;
  if (named || in_allocation_of_several(environment)) return {};
  if (several(environment, "PET_NNODES") > 1) {
    return {
        .starts = false,
        .text = "PET_NNODES=" + value_of(environment, "PET_NNODES") +
                ": this command seems to run on each of several hosts, as torchrun does, and each would start the "
                "whole job. Instead " +
                kOnEachHost +
                ". If you run it only once, `unset PET_NNODES`; for a job of its own on each host, add --no-detect"};
  }
  if (several(environment, "WORLD_SIZE") == 1 || value_of(environment, "RANK").empty()) {
    return as_for_platform(options, environment);
  }
  return {.text = "RANK=" + value_of(environment, "RANK") + " and WORLD_SIZE=" + value_of(environment, "WORLD_SIZE") +
                  " are set and will be overwritten. If you run this command only once, `unset RANK WORLD_SIZE` or "
                  "add --no-detect. If it runs on each host, as torchrun does, each starts the whole job: " +
                  kOnEachHost};
}

}  // namespace

AmongCopies among_copies(const Options& options, const Environment& environment) {
  // A command that a rank starts is no copy, even if the rank has variables of other launchers.
  if (!options.hosts.detect || environment.contains("DISTRUN_RANK")) return {};
  const auto copy = net::copy_of_command(environment);
  if (!copy) return as_for_torchrun(options, environment);
  const std::string count = std::to_string(copy->size);
  if (copy->rank == 0) {
    return {.text = "type distrun only once: " + copy->asked_by + " shows up to " + count +
                    " copies of this command. This copy starts the job; the others exit with code 64"};
  }
  const std::string this_is = "this is copy " + std::to_string(copy->rank) + " of " + count +
                              " copies of this command (" + copy->asked_by + "). Copy 0 starts the job; ";
  if (copy->rank > 1)
    return {.starts = false,
            .text = this_is + "the message of copy 1 says what to do (--no-detect starts a job of its own)"};
  const std::string variable = copy->asked_by.substr(0, copy->asked_by.find('='));
  return {
      .starts = false,
      .text = this_is +
              "type distrun once, without srun or mpirun. To let srun or mpirun start the ranks, leave out distrun: "
              "`srun --mpi=pmi2 python train.py`. For a job of its own in each copy, add --no-detect, or start it with "
              "`env -u " +
              variable + "` to keep the hosts of the allocation"};
}

}  // namespace distrun::launcher
