// The operation that one node of a graph, or one eager call, describes. It is read once, when TensorFlow makes the
// kernel.
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
  std::vector<std::string> names;  // empty: numbered; one: for all tensors; else one for each
  std::int32_t reduce = DISTRUN_SUM;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t process_set = 0;
  std::int32_t root = 0;
  bool grouped = false;  // all tensors run or none
  bool eager = false;    // the calling thread only waits
  // Set when other users still needed a large input. The same will happen again, so we may allocate the output
  // ourselves (warm_memory.h).
  mutable std::atomic<bool> inputs_stay{false};

  // The full names of `count` tensors. Unnamed ones take the next number, so call this once per operation.
  [[nodiscard]] std::vector<std::string> tensor_names(std::size_t count) const;
};

// Reads the attributes. If one is wrong, reports it to TensorFlow and returns null.
Kernel* make_kernel(distrun_kind kind, TF_OpKernelConstruction* construction) noexcept;

enum class Output { kNone, kAsInput, kGathered, kShare };

// The properties of an operation in runtime/base/operations.def.
struct Operation {
  const char* name;
  Output output;
  bool reduces;
  bool has_root;
};
const Operation& operation_of(distrun_kind kind);

}  // namespace distrun::tensorflow
