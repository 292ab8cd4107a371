#include "runtime/engine/run/stand_in.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

namespace distrun::engine {
namespace {

template <class T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <class T>
std::vector<std::byte> neutral(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  const T lowest = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  if (op == ReduceOp::kMin) return bytes_of(highest);
  if (op == ReduceOp::kMax) return bytes_of(lowest);
  return bytes_of(static_cast<T>(op == ReduceOp::kProduct ? 1 : 0));
}

struct HalfBits {
  std::uint16_t one;
  std::uint16_t infinity;
};

std::vector<std::byte> neutral_half(ReduceOp op, HalfBits bits) {
  constexpr std::uint16_t kSign = 0x8000;
  if (op == ReduceOp::kMin) return bytes_of(bits.infinity);
  if (op == ReduceOp::kMax) return bytes_of(static_cast<std::uint16_t>(bits.infinity | kSign));
  return bytes_of(op == ReduceOp::kProduct ? bits.one : std::uint16_t{0});
}

}  // namespace

std::vector<std::byte> neutral_element(ReduceOp op, DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return neutral<std::uint8_t>(op);
    case DType::kI8:
      return neutral<std::int8_t>(op);
    case DType::kI16:
      return neutral<std::int16_t>(op);
    case DType::kI32:
      return neutral<std::int32_t>(op);
    case DType::kI64:
      return neutral<std::int64_t>(op);
    case DType::kF16:
      return neutral_half(op, {.one = 0x3C00, .infinity = 0x7C00});
    case DType::kBF16:
      return neutral_half(op, {.one = 0x3F80, .infinity = 0x7F80});
    case DType::kF32:
      return neutral<float>(op);
    case DType::kF64:
      return neutral<double>(op);
    case DType::kBool:
      return neutral<bool>(op);
  }
  return {};
}

TensorPtr make_stand_in(int set, std::string_view name, Signature signature, int gpu) {
  if (signature.kind == OpKind::kAllgather) signature.shape.front() = 0;
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
  if (signature.kind == OpKind::kAllreduce) element = neutral_element(signature.reduce, signature.dtype);
  auto memory = backend.allocate(tensor.submission().device, payload_bytes(signature), element);
  if (!memory.ok()) {
    return memory.status().with_context("what stands in for tensor '" + tensor.submission().name +
                                        "' of the ranks that have not joined yet");
  }
  tensor.own(*std::move(memory));
  return {};
}

}  // namespace distrun::engine
