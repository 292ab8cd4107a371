// Detects that one distrun command was started several times. srun and mpirun start a command once per task. Kubernetes
// operators start it in each pod, as they start torchrun. Each copy would then start the whole job, on the same GPUs.
// Pure.
#pragma once

#include <string>

#include "launcher/options.h"
#include "runtime/base/environment.h"

namespace distrun::launcher {

struct AmongCopies {
  bool starts = true;  // false: this copy ends as for a wrong command line
  std::string text;    // tells the user why; may be empty
};

// Copy 0 starts the job: in the shell of `srun -n 4 --pty` the user types distrun once, but the variables say copy 0 of
// 4. Copy 1 prints the full explanation, and later copies print one line. If a pod's variables for torchrun name
// several hosts, no copy starts the job.
AmongCopies among_copies(const Options& options, const Environment& environment);

}  // namespace distrun::launcher
