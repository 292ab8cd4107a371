#include "launcher/cli/copies.h"

#include "runtime/net/other_launcher.h"

namespace distrun::launcher {

AmongCopies among_copies(const Options& options, const Environment& environment) {
  const auto copy = options.detect ? net::copy_of_command(environment) : std::nullopt;
  if (!copy) return {};
  const std::string count = std::to_string(copy->size);
  if (copy->rank == 0) {
    return {.text = "of the " + count + " copies of this command (" + copy->told_by +
                    ") this one starts the job, and the others end: type distrun once"};
  }
  if (copy->rank > 1) return {.starts = false};
  return {.starts = false,
          .text = "this is copy 1 of " + count + " of one command (" + copy->told_by +
                  "), and each would start the whole job; copy 0 does. Type distrun once, without srun or mpirun or "
                  "with `-n 1` of theirs: it starts ranks on all hosts by itself. Where the copies are to be the "
                  "ranks, leave distrun away (`srun --mpi=pmi2 python train.py`, `mpirun ...`). If each copy is to "
                  "start a job of its own, add --no-detect"};
}

}  // namespace distrun::launcher
