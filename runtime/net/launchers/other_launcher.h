// The world as another launcher tells it, one that has started the ranks without distrun: mpirun (Open MPI), mpiexec
// (MPICH, Intel MPI), srun. Variables in, world out; pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::net {

struct OtherLauncher {
  // Through what the ranks can tell each other where they meet (spawner_exchange.h).
  enum class Exchange { kPmix, kPmi };
  int rank = 0;
  int size = 0;  // 0: only PMIx knows
  Exchange exchange = Exchange::kPmix;
  int pmi_fd = -1;
  std::string job;  // the launcher's name for it, or empty
  // Where the launcher's own libpmix may be. Another one finds less of what the launcher has to say, and an MPI that is
  // loaded later gets whichever is there.
  std::vector<std::string> pmix_folders{};
  friend bool operator==(const OtherLauncher&, const OtherLauncher&) = default;
};

// Nothing if no launcher says that there are several tasks. An error that names the variable and the cure if variables
// are missing or contradict each other, if there is no exchange (plain srun), or if the launcher is one whose ranks
// distrun cannot join (WORLD_SIZE of torchrun): never a world of one for each of several tasks.
Result<std::optional<OtherLauncher>> other_launcher(const Environment& environment);

// Which of several copies of one command this is, for commands that are meant to run once; whether the copies could
// meet does not matter. Nothing where variables tell of one, of none, or contradict each other.
struct CopyOfCommand {
  int rank = 0;
  int size = 0;
  std::string told_by;  // "SLURM_STEP_NUM_TASKS=2"
};
std::optional<CopyOfCommand> copy_of_command(const Environment& environment);

}  // namespace distrun::net
