// The operation that the C programs here use.
#pragma once

#include <distrun/distrun.h>

#include <cstdint>

// The sum of `*value` over all ranks, in place. `name` and `value` must stay valid until the operation has completed.
inline distrun_op sum_of(const char* name, float* value) {
  static const int64_t shape[1] = {1};
  distrun_op op = DISTRUN_INIT(distrun_op);
  op.kind = DISTRUN_ALLREDUCE;
  op.name = name;
  op.dtype = DISTRUN_FLOAT32;
  op.reduce = DISTRUN_SUM;
  op.shape = shape;
  op.ndim = 1;
  op.input = op.output = value;
  op.prescale = op.postscale = 1.0;
  op.group = -1;
  return op;
}
