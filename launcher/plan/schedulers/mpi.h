// --mpi: MPI's own launcher starts one wrapper for each rank, so that MPI works in the ranks. The wrappers are agents
// of one rank each. What that means for the plan, and the command line. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/place/assign.h"
#include "runtime/base/environment.h"
#include "runtime/base/status.h"

namespace distrun::launcher {

enum class MpiStarter { kMpirun, kHydra, kSrunPmix, kSrunPmi2 };

// "mpirun", "hydra", "pmix", "pmi2".
std::optional<MpiStarter> parse_mpi_starter(std::string_view text);

// The command that starts `wrapper` (words) once for each rank, in the order of the ranks, and gives each its standard
// input. `environment` is that launcher's. An error names what it cannot do.
Result<std::vector<std::string>> mpi_argv(MpiStarter starter, const Assignment& assignment,
                                          const Environment& environment, const std::vector<std::string>& wrapper);

// Whether it gives its standard input to rank 0 only. The wrapper there then shares the key through PMI.
bool shares_key_by_pmi(MpiStarter starter);

// The same places with one agent for each rank: `hosts` has a host once for each of its ranks.
Assignment one_agent_per_rank(const Assignment& assignment);

// Without what is true on this host only: srun, mpiexec and a scheduler's mpirun hand on all variables, and on other
// hosts wrappers would take these for what that host says. What ssh needs stays for those that use it, and so do
// folders, which are looked for.
Environment environment_of_starter(MpiStarter starter, const Environment& environment);

// Variables that the wrapper's rank needs from MPI's launcher, whatever the user's environment rule says.
bool needed_by_mpi(std::string_view name);

}  // namespace distrun::launcher
