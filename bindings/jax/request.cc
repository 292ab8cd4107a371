#include "bindings/jax/request.h"

#include <cstring>
#include <string_view>

namespace distrun::jax {
namespace {

constexpr int kS32 = 4;
constexpr int kS64 = 5;
constexpr int kF64 = 12;

std::size_t bytes_of(std::int32_t dtype) {
  switch (dtype) {
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, ...) \
  case number:                                              \
    return bytes;
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
    default:
      return 0;
  }
}

bool read(const xla::Scalar& scalar, std::int32_t& value) {
  if (scalar.dtype == kS32) {
    value = *static_cast<const std::int32_t*>(scalar.value);
    return true;
  }
  if (scalar.dtype != kS64) return false;
  value = static_cast<std::int32_t>(*static_cast<const std::int64_t*>(scalar.value));
  return true;
}

bool read(const xla::Scalar& scalar, double& value) {
  if (scalar.dtype != kF64) return false;
  value = *static_cast<const double*>(scalar.value);
  return true;
}

bool read_scalar(std::string_view name, const xla::Scalar& scalar, Request& request) {
  if (name == "kind") return read(scalar, request.kind);
  if (name == "reduce") return read(scalar, request.reduce);
  if (name == "root") return read(scalar, request.root);
  if (name == "process_set") return read(scalar, request.process_set);
  if (name == "prescale") return read(scalar, request.prescale);
  return name == "postscale" && read(scalar, request.postscale);
}

// The suffix that other front ends add to a name for a place in a group. The engine knows this form. So if one rank
// reduces one array "x", and another rank several, both get an error. The number of arrays is always 0 here ("of0"):
// ranks with different numbers then use the same names, and get the error at once.
std::string place_in_group(std::size_t index) { return "_" + std::to_string(index + 1) + "of0"; }

}  // namespace

std::string read_attributes(const xla::Attributes& attributes, Request& request) {
  for (std::int64_t i = 0; i < attributes.size; ++i) {
    const std::string_view name(attributes.names[i]->data, attributes.names[i]->size);
    bool known = false;
    if (attributes.types[i] == xla::kStringAttribute && name == "name") {
      const auto* text = static_cast<const xla::ByteSpan*>(attributes.values[i]);
      request.name.assign(text->data, text->size);
      known = true;
    } else if (attributes.types[i] == xla::kScalarAttribute) {
      known = read_scalar(name, *static_cast<const xla::Scalar*>(attributes.values[i]), request);
    }
    if (!known) {
      return "the compiled program's attribute '" + std::string(name) +
             "' comes from another version of distrun. Clear the compilation cache of JAX";
    }
  }
  return request.name.empty() ? "the compiled program has no name" : "";
}

std::int32_t dtype_of(int xla_type) {
  switch (xla_type) {
#define DISTRUN_DTYPE(id, number, c_name, name, bytes, family, exponent, element, nccl, open_mpi, mpi_abi, tf_name, \
                      tf, xla)                                                                                      \
  case xla:                                                                                                         \
    return DISTRUN_##c_name;
#include "runtime/base/dtypes.def"
#undef DISTRUN_DTYPE
    default:
      return -1;
  }
}

std::size_t bytes_of(const xla::Buffer& buffer, std::int32_t dtype) {
  std::size_t bytes = bytes_of(dtype);
  for (std::int64_t i = 0; i < buffer.rank; ++i) bytes *= static_cast<std::size_t>(buffer.dims[i]);
  return bytes;
}

std::string make_operations(const Request& request, const xla::CallFrame& frame, std::vector<std::string>& names,
                            std::vector<distrun_op>& operations) {
  const auto count = static_cast<std::size_t>(frame.results.size);
  const std::int64_t others = frame.arguments.size - frame.results.size;
  if (others < 0 || others > 1 || count == 0) {
    return "'" + request.name + "' has " + std::to_string(frame.arguments.size) + " arguments and " +
           std::to_string(frame.results.size) + " results";
  }
  names.reserve(count);  // the operations point into it
  for (std::size_t i = 0; i < count; ++i) {
    const auto& input = *static_cast<const xla::Buffer*>(frame.arguments.values[i]);
    const auto& output = *static_cast<const xla::Buffer*>(frame.results.values[i]);
    names.push_back(count == 1 ? request.name : request.name + place_in_group(i));
    auto op = DISTRUN_INIT(distrun_op);
    op.dtype = dtype_of(input.dtype);
    if (op.dtype < 0) {
      return "tensor '" + names.back() + "': distrun cannot send arrays of XLA's type " + std::to_string(input.dtype);
    }
    op.kind = request.kind;
    op.name = names.back().c_str();
    op.reduce = request.reduce;
    op.shape = input.dims;
    op.ndim = static_cast<std::uint32_t>(input.rank);
    op.root = request.root;
    op.input = input.data;
    const bool made_by_runtime = request.kind == DISTRUN_ALLGATHER || request.kind == DISTRUN_ALLTOALL;
    op.output = made_by_runtime ? nullptr : output.data;
    op.prescale = request.prescale;
    op.postscale = request.postscale;
    op.process_set = request.process_set;
    op.group = count == 1 ? -1 : 0;
    operations.push_back(op);
  }
  return "";
}

}  // namespace distrun::jax
