#include "runtime/engine/run/stand_in.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

namespace distrun::engine {
namespace {

// The bits of the neutral element, in the lowest bytes.
std::uint64_t neutral_bits(ReduceOp op, const DTypeTraits& dtype) {
  const std::size_t bits = 8 * dtype.bytes;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const int mantissa = static_cast<int>(bits) - 1 - dtype.exponent;  // of a float
  const bool is_float = dtype.family == DTypeFamily::kFloat;
  const std::uint64_t all_ones = (sign - 1) | sign;
  const std::uint64_t infinity = ((std::uint64_t{1} << dtype.exponent) - 1) << mantissa;
  switch (op) {
    case ReduceOp::kMin:
      if (dtype.family == DTypeFamily::kBool) return 1;
      if (is_float) return infinity;
      return dtype.family == DTypeFamily::kSigned ? sign - 1 : all_ones;
    case ReduceOp::kMax:
      if (is_float) return infinity | sign;
      return dtype.family == DTypeFamily::kSigned ? sign : 0;
    case ReduceOp::kProduct:
      return is_float ? (infinity >> 1) & ~((std::uint64_t{1} << mantissa) - 1) : 1;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      break;
  }
  return 0;
}

}  // namespace

std::vector<std::byte> neutral_element(ReduceOp op, DType dtype) {
  std::vector<std::byte> bytes(size_of(dtype));
  // Of a complex number it is real: the first half.
  const bool parts = traits_of(dtype).family == DTypeFamily::kComplex;
  const DType first = !parts ? dtype : dtype == DType::kC64 ? DType::kF32 : DType::kF64;
  const std::uint64_t bits = neutral_bits(op, traits_of(first));
  std::memcpy(bytes.data(), &bits, size_of(first));
  return bytes;
}

TensorPtr make_stand_in(int set, std::string_view name, Signature signature, int gpu) {
  if (traits_of(signature.kind).output == OpOutput::kGathered) signature.shape.front() = 0;
  const std::int16_t index = signature.device == DeviceType::kCuda ? static_cast<std::int16_t>(gpu) : std::int16_t{0};
  const Submission submission{.kind = signature.kind,
                              .name = std::string(name),
                              .dtype = signature.dtype,
                              .shape = signature.shape,
                              .device = {.type = signature.device, .index = index},
                              .reduce = signature.reduce,
                              .prescale = signature.prescale,
                              .postscale = signature.postscale,
                              .root = signature.root,
                              .process_set = set};
  auto tensor = std::make_shared<Tensor>(submission, std::move(signature), Clock::now());
  tensor->make_stand_in();
  return tensor;
}

Status fill_stand_in(Tensor& tensor, backend::Backend& backend) {
  const Signature& signature = tensor.signature();
  std::vector<std::byte> element;
  const SentAs sent = sent_as(signature.kind, signature.reduce, signature.dtype);
  if (traits_of(signature.kind).reduces) element = neutral_element(signature.reduce, sent.dtype);
  auto memory = backend.allocate(tensor.submission().device, payload_bytes(signature), element);
  if (!memory.ok()) {
    return memory.status().with_context("the data of a joined rank for tensor '" + tensor.submission().name + "'");
  }
  tensor.own(*std::move(memory));
  return {};
}

}  // namespace distrun::engine
