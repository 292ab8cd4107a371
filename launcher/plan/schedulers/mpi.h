// --mpi: MPI's own launcher starts one wrapper per rank, so that MPI works in the ranks. Each wrapper is an agent of
// one rank. This file has the effects on the plan and the command line. Pure.
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

// The command that starts the words of `wrapper` once per rank, in the order of the ranks, and gives standard input to
// each. `environment` is that of MPI's launcher. `as_root`: mpirun of Open MPI may run as root. An error names what the
// launcher cannot do.
Result<std::vector<std::string>> mpi_argv(MpiStarter starter, const Assignment& assignment,
                                          const Environment& environment, const std::vector<std::string>& wrapper,
                                          bool as_root = false);

// True if it gives its standard input to rank 0 only. The wrapper of rank 0 then shares the key through PMI.
bool shares_key_by_pmi(MpiStarter starter);

// The same places with one agent per rank: `hosts` then has one entry per rank.
Assignment one_agent_per_rank(const Assignment& assignment);

// Removes variables that are true on this host only. srun, mpiexec and a scheduler's mpirun pass on all variables, and
// the wrappers on other hosts would use them as values of their host. The variables that ssh needs stay if the launcher
// uses ssh. Folders stay too, because agents check that they exist.
Environment environment_of_starter(MpiStarter starter, const Environment& environment);

// True for variables of MPI's launcher that the rank needs, even if --env would remove them.
bool needed_by_mpi(std::string_view name);

}  // namespace distrun::launcher
