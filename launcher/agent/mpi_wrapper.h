// `distrun agent --mpi SECONDS [--key-by-pmi] ADDRESS...`: MPI's launcher starts this program once for each rank
// (--mpi). It reads the key from standard input, where mpirun or srun passes it on, and connects to the head. It is
// then an agent with one rank.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/environment.h"

namespace distrun::launcher {

// Prefix of the purpose in a wrapper's Hello; rank and local rank follow: "mpi:3.1".
inline constexpr const char* kMpiPurpose = "mpi:";

// The second argument, if only rank 0 receives the key on its standard input. Rank 0 then shares the key with the
// others by the exchange of MPI's launcher (PMI, PMIx).
inline constexpr const char* kKeyByPmi = "--key-by-pmi";

// `words`: the seconds that the head waits for all wrappers, optionally kKeyByPmi, and the addresses of the head. The
// first address that answers is used. Returns the exit code.
int mpi_wrapper_main(const std::vector<std::string>& words, const Environment& environment);

}  // namespace distrun::launcher
