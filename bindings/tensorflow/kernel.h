// What one node of a graph, or one eager call, says about its operation: read once, when TensorFlow makes the kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/tensorflow/tf_api.h"
#include "distrun/distrun.h"

namespace distrun::tensorflow {

struct Kernel {
  distrun_kind kind = DISTRUN_ALLREDUCE;
  std::vector<std::string> names;  // none: numbered; one: for all tensors; else one for each
  std::int32_t reduce = DISTRUN_SUM;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t process_set = 0;
  std::int32_t root = 0;
  bool grouped = false;  // the tensors run all or none
  bool eager = false;    // the calling thread has nothing else to do than to wait
  // A large input was needed by others too. It will be again, so the output's memory is ours to choose (warm_memory.h).
  mutable std::atomic<bool> inputs_stay{false};

  // The full names of `count` tensors. Unnamed ones take the next number, so this is called once per operation.
  [[nodiscard]] std::vector<std::string> tensor_names(std::size_t count) const;
};

// Reads the attributes; null after it has told TensorFlow what is wrong.
Kernel* make_kernel(distrun_kind kind, TF_OpKernelConstruction* construction) noexcept;

enum class Output { kNone, kAsInput, kGathered, kShare };

// What runtime/base/operations.def says of an operation.
struct Operation {
  const char* name;
  Output output;
  bool reduces;
  bool has_root;
};
const Operation& operation_of(distrun_kind kind);

}  // namespace distrun::tensorflow
