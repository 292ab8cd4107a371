// Decides which ready tensors run together. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/engine/protocol/signature.h"

namespace distrun::engine {

struct FusionCandidate {
  int set = 0;
  const Signature* signature = nullptr;  // only allreduces with equal dtype, operation, scales and device are fused
};

struct FusionLimits {
  std::uint64_t bytes = 0;     // of one batch; 0: no fusion. A single tensor or group above this runs alone.
  std::size_t tensors = 4096;  // of one batch; bounds the message that names them
};

// Returns batches of positions in `ready`. Batches are in the order of their first tensor, tensors in the order of
// `ready`. The tensors of one group, which the caller must pass together, stay in one batch as far as their signatures
// allow.
std::vector<std::vector<std::size_t>> plan_fusion(std::span<const FusionCandidate> ready, const FusionLimits& limits);

}  // namespace distrun::engine
