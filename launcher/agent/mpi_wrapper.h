// `distrun agent --mpi SECONDS [--key-by-pmi] ADDRESS...`: what MPI's launcher starts once for each rank (--mpi). It
// reads the key that mpirun or srun brings on standard input, dials the head, and is then an agent of one rank.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/environment.h"

namespace distrun::launcher {

// In a wrapper's Hello, before its rank and local rank: "mpi:3.1".
inline constexpr const char* kMpiPurpose = "mpi:";

// The second word where only rank 0 has the key on its standard input: it shares it through the launcher's own
// exchange.
inline constexpr const char* kKeyByPmi = "--key-by-pmi";

// `words`: how long the head waits for all wrappers, that one, and where the head listens; the first address that
// answers is taken. Returns the exit code.
int mpi_wrapper_main(const std::vector<std::string>& words, const Environment& environment);

}  // namespace distrun::launcher
