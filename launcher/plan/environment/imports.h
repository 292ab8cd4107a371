// What distrun must know about a program before it starts it: the imports of a Python script, and other launchers.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

struct Imports {
  bool mpi4py = false;
  bool horovod = false;
  // Imports jax and starts jax.distributed. Without jax.distributed, each process sees all GPUs by default.
  bool jax_job = false;
  bool jax_unaided = false;  // starts it without arguments: JAX finds its rank under a few launchers only
  // Starts TensorFlow's DTensor, but does not name the variables that DTensor reads its place from.
  bool dtensor = false;
  bool distrun = false;
  // Takes the number of its GPU only from --local_rank, an argument that python -m torch.distributed.launch used to
  // pass.
  bool local_rank_option = false;
  // Takes its rank from SLURM_PROCID, and never from RANK.
  bool slurm_rank = false;
};
Imports imports_in(std::string_view script);

// "torchrun" or "accelerate launch", as typed, if the command itself starts processes. Else empty.
std::string launcher_in(const std::vector<std::string>& command);

}  // namespace distrun::launcher
