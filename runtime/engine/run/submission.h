// What a caller hands over, what it gets back, and the handle on which it waits. docs/threads.md has the rules.
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

// What a caller hands over: one tensor, one operation. Memory stays valid until the handle completes.
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
  int group = -1;  // >= 0: submissions of one call with this number run all or none
  const void* input = nullptr;
  void* output = nullptr;            // null for allgather, alltoall, barrier and join; reducescatter: this rank's share
  std::vector<std::int64_t> splits;  // alltoall: rows for each member; empty: equal shares
  std::shared_ptr<void> mark;        // on a device: Factory::mark() of the caller's stream, so that the input is ready
  int stand_in_gpu = -1;             // join: where to take part in what is on GPUs; -1: not said
};

struct Output {
  Shape shape;
  // Allgather: dimension 0 of each member. Alltoall: rows received from each. Join: the rank that joined last.
  std::vector<std::int64_t> first_dims;
  backend::Memory gathered;  // allgather, alltoall: the output, on the input's device
  std::size_t bytes = 0;
};

// One operation in flight, shared by the caller and the engine. done() turns true exactly once, after which status()
// and result() are immutable and no thread touches the tensor's memory any more.
class Handle {
 public:
  virtual ~Handle() = default;
  [[nodiscard]] virtual bool done() const = 0;  // acquire
  [[nodiscard]] virtual const Status& status() const = 0;
  [[nodiscard]] virtual const Output& output() const = 0;
};
using HandlePtr = std::shared_ptr<Handle>;

}  // namespace distrun::engine
