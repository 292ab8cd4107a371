// What a program is, as far as it matters to how it is started: what a Python script imports, and other launchers.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct Imports {
  bool mpi4py = false;
  bool horovod = false;
  bool jax_job = false;      // imports jax and starts what its processes form: by default each sees all GPUs without it
  bool jax_unaided = false;  // and does it without arguments, by which JAX finds its place with a few launchers only
  bool dtensor = false;  // starts TensorFlow's DTensor and does not name the variables by which that finds its place
  bool distrun = false;
  // Takes the number of its GPU from a --local_rank alone, which python -m torch.distributed.launch used to pass.
  bool local_rank_option = false;
  // Takes its rank from SLURM_PROCID, and not from RANK where that is set.
  bool slurm_rank = false;
};
Imports imports_in(std::string_view script);

// As typed, "torchrun" or "accelerate launch", where the command is one that starts processes itself; else empty.
std::string launcher_in(const std::vector<std::string>& command);

}  // namespace distrun::launcher
