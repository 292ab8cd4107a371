#include "launcher/cli/copies.h"

#include "runtime/net/other_launcher.h"

namespace distrun::launcher {

AmongCopies among_copies(const Options& options, const Environment& environment) {
  // What a rank of ours starts is no copy, whatever variables of other launchers the rank has been given.
  if (!options.detect || environment.contains("DISTRUN_RANK")) return {};
  const auto copy = net::copy_of_command(environment);
  if (!copy) return {};
  const std::string count = std::to_string(copy->size);
  if (copy->rank == 0) {
    return {.text = "of " + count + " copies of this command, if there are so many (" + copy->told_by +
                    "), this one starts the job and the others end: type distrun once"};
  }
  const std::string this_is = "this is copy " + std::to_string(copy->rank) + " of " + count + " of one command (" +
                              copy->told_by + "), and each would start the whole job; copy 0 does. ";
  if (copy->rank > 1)
    return {.starts = false, .text = this_is + "Copy 1 says more; --no-detect starts a job of its own"};
  const std::string variable = copy->told_by.substr(0, copy->told_by.find('='));
  return {
      .starts = false,
      .text = this_is +
              "Type distrun once, without srun or mpirun or with `-n 1` of theirs: it starts ranks on all hosts by "
              "itself. Where the copies are to be the ranks, leave distrun away (`srun --mpi=pmi2 python train.py`, "
              "`mpirun ...`). If each is to start a job of its own, add --no-detect, or, to have the hosts still "
              "detected, begin with `env -u " +
              variable + "`"};
}

}  // namespace distrun::launcher
