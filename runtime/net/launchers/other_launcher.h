// Finds the world of ranks that another launcher has started: mpirun (Open MPI), mpiexec (MPICH, Intel MPI) or srun.
// Its input is the variables, its output the world. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::net {

struct OtherLauncher {
  // How the ranks can tell each other the address of the store (spawner_exchange.h).
  enum class Exchange { kPmix, kPmi };
  int rank = 0;
  int size = 0;  // 0: only PMIx knows it
  Exchange exchange = Exchange::kPmix;
  int pmi_fd = -1;
  std::string job;  // the launcher's name for the job, or empty
  // Folders that may hold the launcher's own libpmix. Another libpmix may find less of the launcher's data. An MPI that
  // is loaded later uses whichever libpmix is already loaded.
  std::vector<std::string> pmix_folders{};
  friend bool operator==(const OtherLauncher&, const OtherLauncher&) = default;
};

// Returns nothing if no launcher reports several tasks. Returns an error with the variable and the cure in three cases:
// variables are missing or contradict each other; there is no exchange (plain srun); or distrun cannot join the
// launcher's ranks (WORLD_SIZE of torchrun). It never returns a job of one rank for each of several tasks.
Result<std::optional<OtherLauncher>> other_launcher(const Environment& environment);

// Which of several copies of a command this process is, for commands that should run once. The copies need no exchange
// for this. Nothing if the variables show one copy or none, or contradict each other.
struct CopyOfCommand {
  int rank = 0;
  int size = 0;
  std::string asked_by;  // the variable that says so, for instance "SLURM_STEP_NUM_TASKS=2"
};
std::optional<CopyOfCommand> copy_of_command(const Environment& environment);

}  // namespace distrun::net
