// distrun's kernels on one GPU. Make all calls with the GPU current.
#pragma once

#include <map>
#include <span>
#include <string>

#include "runtime/backend/cuda/batch.h"
#include "runtime/backend/cuda/calls.h"
#include "runtime/backend/cuda/wire_type.h"
#include "runtime/backend/kernels/kernels.h"

namespace distrun::backend::cuda_parts {

class Kernels {
 public:
  // `image` (PTX that ends with a zero byte) must outlive this object.
  Kernels(const Calls& calls, const char* image) : calls_(calls), image_(image) {}
  // Call this before the first operation: the driver may wait for work of NCCL on the device. The kernels run on
  // `stream`.
  Status load(CuStream stream);
  void unload();

  // Runs a kernel ("pack" or "unpack") on all pieces, with at most kPieces of them per launch.
  Status run(const char* kind, const WireType& wire, const kernels::Finish& how, std::span<const Piece> pieces) const;
  // to = from op to, for packed data.
  Status combine(const WireType& wire, Combine how, const Piece& piece) const;

 private:
  Status launch(const char* kind, const WireType& wire, const Batch& like, std::span<const Piece> pieces) const;

  const Calls calls_;
  const char* const image_;
  CuStream stream_ = nullptr;
  CuModule module_ = nullptr;
  std::map<std::string, CuFunction> functions_;  // by name; complete after load()
};

}  // namespace distrun::backend::cuda_parts
