// Several copies of one distrun command: srun and mpirun start a command once for each task, and Kubernetes operators
// in each pod, as torchrun is started, and each copy would start the whole job, on the same GPUs. Pure.
#pragma once

#include <string>

#include "launcher/options.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

struct AmongCopies {
  bool starts = true;  // else this one ends as for a wrong command line
  std::string text;    // what the user should know; empty where there is nothing
};

// Copy 0 starts the job: in the shell of `srun -n 4 --pty` distrun was typed once, though its variables are those of a
// copy. Of the others the first says all, the rest a line. Where a pod's variables for torchrun say so, no copy starts.
AmongCopies among_copies(const Options& options, const Environment& environment);

}  // namespace distrun::launcher
