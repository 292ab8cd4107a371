// What a call of the handler asks for: its attributes and buffers, checked. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/jax/xla_ffi.h"
#include "distrun/distrun.h"

namespace distrun::jax {

// Attributes are set when a function is traced and are part of the compiled program, so they hold no pointers.
struct Request {
  std::string name;  // of the first tensor; several have name.0, name.1, ...
  std::int32_t kind = 0;
  std::int32_t reduce = 0;
  std::int32_t root = 0;
  std::int32_t process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
};

// Empty, or what is wrong.
std::string read_attributes(const xla::Attributes& attributes, Request& request);

// distrun_dtype of an XLA type; -1 for one that cannot travel.
std::int32_t dtype_of(int xla_type);
std::size_t bytes_of(const xla::Buffer& buffer, std::int32_t dtype);

// One operation for each result, whose input is the argument at the same place. One more argument may follow, which is
// not looked at: by it the call comes after the one that makes it. Operations point into `frame`'s buffers and into
// `names`, which is filled. Empty, or what is wrong.
std::string make_operations(const Request& request, const xla::CallFrame& frame, std::vector<std::string>& names,
                            std::vector<distrun_op>& operations);

}  // namespace distrun::jax
