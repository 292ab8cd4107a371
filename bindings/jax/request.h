// The request of a handler call: its attributes and buffers, checked. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/jax/xla_ffi.h"
#include "distrun/distrun.h"

namespace distrun::jax {

// JAX sets the attributes when it traces a function. They are part of the compiled program, so they hold no pointers.
struct Request {
  std::string name;  // for one tensor; several tensors add a suffix for their place
  std::int32_t kind = 0;
  std::int32_t reduce = 0;
  std::int32_t root = 0;
  std::int32_t process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
};

// Returns an empty text, or the fault.
std::string read_attributes(const xla::Attributes& attributes, Request& request);

// The distrun_dtype of an XLA type; -1 if distrun does not support it.
std::int32_t dtype_of(int xla_type);
std::size_t bytes_of(const xla::Buffer& buffer, std::int32_t dtype);

// Makes one operation for each result. Its input is the argument at the same index. One more argument may follow. It is
// not read, and only makes the call run after the operation that produces it. Operations point into the buffers of
// `frame` and into `names`, which this function fills. Returns an empty text, or the fault.
std::string make_operations(const Request& request, const xla::CallFrame& frame, std::vector<std::string>& names,
                            std::vector<distrun_op>& operations);

}  // namespace distrun::jax
