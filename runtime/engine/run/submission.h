// The structs that callers pass to the engine and get back, and the handle that they wait for.
// docs/internals/threads.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/status.h"
#include "runtime/base/types.h"

namespace distrun::engine {

// A caller's request: one tensor, one operation. The memory must stay valid until the handle completes.
struct Submission {
  OpKind kind = OpKind::kAllreduce;
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  Device device;
  ReduceOp reduce = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;  // broadcast: world rank
  int process_set = 0;
  int group = -1;  // >= 0: the submissions of one call with the same number run all or none
  const void* input = nullptr;
  // null for allgather, alltoall, barrier and join; reducescatter: memory for this rank's share
  void* output = nullptr;
  std::vector<std::int64_t> splits;  // alltoall: rows for each member; empty: equal shares
  std::shared_ptr<void> mark;        // on a device: Factory::mark() of the caller's stream; the input is ready after it
  int stand_in_gpu = -1;             // join: the GPU for operations on GPUs; -1: not given
};

struct Output {
  Shape shape;
  // Allgather: dimension 0 of each member. Alltoall: rows received from each. Join: the rank that joined last.
  std::vector<std::int64_t> first_dims;
  backend::Memory gathered;  // allgather, alltoall: the output, on the input's device
  std::size_t bytes = 0;
};

// One operation in flight, shared by the caller and the engine. done() turns true exactly once. After that status() and
// output() never change, and no thread uses the tensor's memory any more.
class Handle {
 public:
  virtual ~Handle() = default;
  [[nodiscard]] virtual bool done() const = 0;  // acquire
  [[nodiscard]] virtual const Status& status() const = 0;
  [[nodiscard]] virtual const Output& output() const = 0;
};
using HandlePtr = std::shared_ptr<Handle>;

}  // namespace distrun::engine
